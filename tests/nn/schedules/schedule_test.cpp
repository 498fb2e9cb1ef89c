// Learning rates: exact values at the ends and between them, and rejected settings.
#include "nn/schedules/base/schedule.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::nn;
using doctest::Approx;

namespace {

double lr(const std::string& spec, const ScheduleOptions& options, int64_t step) {
  return make_schedule(parse_spec(spec), options)->learning_rate(step);
}
const ScheduleOptions base{.learning_rate = 1, .min_learning_rate = 0.1, .warmup_steps = 9, .steps = 109};

}  // namespace

TEST_CASE("schedules: warm-up, ends, shapes") {
  CHECK(lr("cosine", base, 0) == Approx(0.1));
  CHECK(lr("cosine", base, 8) == Approx(0.9));
  CHECK(lr("cosine", base, 9) == Approx(1));
  CHECK(lr("cosine", base, 59) == Approx(0.55));
  CHECK(lr("cosine", base, 109) == Approx(0.1));
  CHECK(lr("cosine", base, 1000) == Approx(0.1));
  CHECK(lr("linear", base, 34) == Approx(1 - 0.25 * 0.9));
  CHECK(lr("constant", base, 100) == 1);
}

TEST_CASE("schedules: a decay reaches its end one step after the last step of the run") {
  const ScheduleOptions options{.learning_rate = 1e-3, .min_learning_rate = 1e-4, .warmup_steps = 100, .steps = 2000};
  for (const char* spec : {"cosine", "linear", "warmup_stable_decay", "warmup_stable_decay(decay_form=exponential)"}) {
    CAPTURE(spec);
    CHECK(lr(spec, options, 2000) == Approx(1e-4).epsilon(1e-14));
    CHECK(lr(spec, options, 1999) > 1e-4);
    CHECK(lr(spec, options, 1999) < lr(spec, options, 1998));
  }
  CHECK(lr("linear", options, 1999) == Approx(1e-4 + 9e-4 / 1900).epsilon(1e-14));
}

TEST_CASE("a quadratic warm-up is 1 - (1 - u)^2 in every schedule, and both forms reach the peak") {
  ScheduleOptions quadratic = base;
  quadratic.warmup_form = "quadratic";
  for (const std::string& name : schedules().names()) {
    INFO(name);
    for (int64_t step = 0; step < 9; ++step) {
      const double u = static_cast<double>(step + 1) / 10;
      CHECK(lr(name, base, step) == Approx(u));
      CHECK(lr(name, quadratic, step) == Approx(1 - (1 - u) * (1 - u)));
    }
    CHECK(lr(name, quadratic, 9) == 1);
    CHECK(lr(name, base, 9) == 1);
    CHECK(lr(name, quadratic, 60) == lr(name, base, 60));
  }
}

TEST_CASE("inverse square root: the warm-up's length over the step, both counted from 1") {
  CHECK(lr("inverse_square_root", base, 39) == 0.5);           // sqrt(10 / 40)
  CHECK(lr("inverse_square_root", base, 999) == Approx(0.1));  // continues beyond the end
  CHECK(lr("inverse_square_root", {.learning_rate = 1, .warmup_steps = 0}, 3) == 0.5);
  for (const int64_t step : {0, 5, 9, 10, 50}) {  // Vaswani's min(t^-1/2, t w^-3/2), scaled to the peak
    const double t = static_cast<double>(step + 1), w = 10;
    CHECK(lr("inverse_square_root", base, step) ==
          Approx(std::sqrt(w) * std::min(std::pow(t, -0.5), t * std::pow(w, -1.5))));
  }
}

TEST_CASE("warm-up, stable, decay: a linear or exponential decay in the last fraction of the run") {
  const ScheduleOptions options{.learning_rate = 2, .min_learning_rate = 0.5, .warmup_steps = 10, .steps = 200};
  for (const std::string spec : {"warmup_stable_decay(decay_fraction=0.25)",
                                 "warmup_stable_decay(decay_fraction=0.25, decay_form=exponential)"}) {
    INFO(spec);
    for (const int64_t step : {10, 80, 149, 150}) CHECK(lr(spec, options, step) == 2);
    CHECK(lr(spec, options, 151) < 2);
    CHECK(lr(spec, options, 200) == Approx(0.5));
    CHECK(lr(spec, options, 500) == Approx(0.5));
  }
  CHECK(lr("warmup_stable_decay(decay_fraction=0.25)", options, 175) == Approx(1.25));
  CHECK(lr("warmup_stable_decay(decay_fraction=0.25, decay_form=exponential)", options, 175) ==
        Approx(1));                                                      // the geometric mean
  CHECK(lr("warmup_stable_decay(decay_fraction=1)", options, 10) == 2);  // never before the warm-up ends
  CHECK(lr("warmup_stable_decay(decay_fraction=1)", options, 105) == Approx(1.25));
  CHECK(lr("warmup_stable_decay(decay_fraction=0)", options, 199) == 2);
  CHECK(lr("warmup_stable_decay(decay_fraction=0.5)",
           {.learning_rate = 2, .min_learning_rate = 0, .warmup_steps = 0, .steps = 10}, 10) == 0);
}

TEST_CASE("invalid schedules have error messages") {
  const auto make = [](const std::string& spec, const ScheduleOptions& options) {
    return testing::expect_error([&] { make_schedule(parse_spec(spec), options); });
  };
  const std::string stable = "warmup_stable_decay", all = join(schedules().names());
  make("cosin", base).names("schedule").value("'cosin'").offers("'cosine'").offers(all);
  make("cosine", {.learning_rate = 0}).names("learning_rate").value(0).offers(0).names("min_learning_rate (0.0001)");
  const ScheduleOptions negative{.learning_rate = 1, .min_learning_rate = -1};
  make("cosine", negative).names("learning_rate").value(1).names("min_learning_rate").value(-1).offers(0);
  make("cosine", {.warmup_steps = -1}).names("warmup_steps").value(-1).names("steps").value(2000).offers(0);
  make("linear", {.warmup_form = "cubic"}).names("warmup_form").value("'cubic'").offers("linear or quadratic");
  make("cosine(3)", base).names("cosine").value("'3'");
  make(stable + "(decay_fraction=1.5)", base).names(stable).names("decay_fraction").value(1.5).offers(1);
  const ScheduleOptions to_zero{.learning_rate = 1, .min_learning_rate = 0};
  testing::Message never = make(stable + "(decay_form=exponential)", to_zero);
  never.names(stable).names("decay_form").value("exponential").names("min_learning_rate").value(0);
  never.offers("decay_form=linear").offers("min_learning_rate").offers(0);
}
