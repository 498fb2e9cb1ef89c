// Warm-up, stable, decay. Hu et al. 2024 (MiniCPM), arXiv:2404.06395, section 4; the linear decay
// is the cooldown of Zhai et al. 2022, arXiv:2106.04560, section 3.5.
//   r = learning_rate until the last decay_fraction of the run (warm-up counted); there, with q from 0 to 1:
//   decay_form=linear        learning_rate + q (min_learning_rate - learning_rate)
//   decay_form=exponential   learning_rate (min_learning_rate / learning_rate)^q: MiniCPM's 0.5^((step - begin) / T),
//                            for a min_learning_rate above 0
// A checkpoint of the stable part starts runs of any length. Decay never begins during the warm-up.
#include <algorithm>
#include <cmath>

#include "nn/schedules/base/schedule.h"

namespace orrery::nn {
namespace {

class WarmupStableDecaySchedule final : public Schedule {
 public:
  struct Settings {
    double decay_fraction = 0.1;
    std::string decay_form = "linear";
    template <class V>
    void visit(V& v) {
      v("decay_fraction|decay", decay_fraction, "fraction of the run, at its end, in which the learning rate falls",
        between(0, 1));
      v("decay_form|fall", decay_form, "form of the decay: linear or exponential", one_of({"linear", "exponential"}));
    }
  };
  static inline const Info info{
      .name = "warmup_stable_decay",
      .formula =
          "learning_rate; at the end learning_rate + q (min_learning_rate - learning_rate) or "
          "learning_rate (min_learning_rate / learning_rate)^q",
      .source = "Hu et al. 2024, arXiv:2404.06395; Zhai et al. 2022, arXiv:2106.04560",
      .parameters = "learning_rate, min_learning_rate, steps"};
  WarmupStableDecaySchedule(const Spec& spec, const ScheduleOptions& options) : Schedule(options) {
    read_settings(spec, settings_);
    check(
        settings_.decay_form == "linear" || options.min_learning_rate > 0,
        "warmup_stable_decay: decay_form: exponential never reaches a min_learning_rate of 0; use decay_form=linear or "
        "a min_learning_rate above 0");
  }

 private:
  double after_warmup(int64_t step, double) const override {
    const double end = static_cast<double>(options_.steps), current = static_cast<double>(step),
                 begin = std::max(end * (1 - settings_.decay_fraction), static_cast<double>(options_.warmup_steps));
    if (current < begin) return options_.learning_rate;
    const double q = current < end ? (current - begin) / (end - begin) : 1;
    if (settings_.decay_form == "linear")
      return options_.learning_rate + q * (options_.min_learning_rate - options_.learning_rate);
    return options_.learning_rate * std::pow(options_.min_learning_rate / options_.learning_rate, q);
  }

  Settings settings_;
};
REGISTER_SCHEDULE(WarmupStableDecaySchedule);

}  // namespace
}  // namespace orrery::nn
