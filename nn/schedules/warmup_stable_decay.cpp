// Warm-up, stable, decay.  Hu et al. 2024 (MiniCPM), arXiv:2404.06395, section 4; the linear fall is the cooldown of
// Zhai et al. 2022, arXiv:2106.04560, section 3.5.
//   r = rate until the last share `decay` of the run, warm-up included; over it, with q from 0 to 1:
//   fall=linear        rate + q (final_rate - rate)
//   fall=exponential   rate (final_rate / rate)^q: MiniCPM's 0.5^((step - begin) / T) for a final_rate above 0
// A checkpoint of the stable part is the start of a run of any length.  The fall never begins before the warm-up ends.
#include <algorithm>
#include <cmath>

#include "nn/schedules/base/schedule.h"

namespace orrery::nn {
namespace {

class WarmupStableDecaySchedule final : public Schedule {
 public:
  struct Settings {
    double decay = 0.1;
    std::string fall = "linear";
    template <class V>
    void visit(V& v) {
      v("decay", decay, "share of the run, at its end, in which the rate falls", between(0, 1));
      v("fall", fall, "linear or exponential", one_of({"linear", "exponential"}));
    }
  };
  static inline const Info info{
      .name = "warmup_stable_decay",
      .formula = "rate; at the end rate + q (final_rate - rate) or rate (final_rate / rate)^q",
      .source = "Hu et al. 2024, arXiv:2404.06395; Zhai et al. 2022, arXiv:2106.04560",
      .parameters = "rate, final_rate, steps"};
  WarmupStableDecaySchedule(const Spec& spec, const ScheduleOptions& options) : Schedule(options) {
    read_settings(spec, settings_);
    check(settings_.fall == "linear" || options.final_rate > 0,
          "warmup_stable_decay: fall: exponential never reaches a final_rate of 0; use fall=linear or a final_rate "
          "above 0");
  }

 private:
  double after_warm_up(int64_t step, double) const override {
    const double end = static_cast<double>(options_.steps), at = static_cast<double>(step),
                 begin = std::max(end * (1 - settings_.decay), static_cast<double>(options_.warm_up));
    if (at < begin) return options_.rate;
    const double q = at < end ? (at - begin) / (end - begin) : 1;
    if (settings_.fall == "linear") return options_.rate + q * (options_.final_rate - options_.rate);
    return options_.rate * std::pow(options_.final_rate / options_.rate, q);
  }

  Settings settings_;
};
REGISTER_SCHEDULE(WarmupStableDecaySchedule);

}  // namespace
}  // namespace orrery::nn
