#include "examples/orrery/terminal/signal_propagation_table.h"

#include <unistd.h>

#include "examples/orrery/terminal/help_text.h"
#include "examples/orrery/terminal/table.h"

namespace orrery::program {

std::string signal_propagation_table(const models::SignalPropagation& propagation) {
  using Value = models::SignalPropagation::Value;
  Table stream({"", "before", "added", "after", "gradient before", "gradient of added", "gradient after"}, "lrrrrrr");
  for (const models::ResidualRow& step : models::residual_rows(propagation)) stream.add(cells(step));
  Table inside({"", "value or before F", "head output or after F", "gradient of the former", "gradient of the latter"},
               "lrrrr");
  for (const Value& first : propagation.values) {
    const auto row = [&](const std::string& of_first, const std::string& of_second) {
      if (!first.name.ends_with("." + of_first)) return;
      const std::string path = first.name.substr(0, first.name.rfind('.'));
      const Value* const second = propagation.find(path + "." + of_second);
      inside.add({path, models::cell(first.mean_square), models::cell(second, &Value::mean_square),
                  models::cell(first.gradient), models::cell(second, &Value::gradient)});
    };
    row("value", "head_output"), row("pre_activation", "hidden");
  }
  Table ratios({"", "ratio", "measured", "predicted", "quotient", "formula", "v"}, "llrrrlr");
  for (const models::SignalPropagation::Ratio& r : propagation.ratios) ratios.add(cells(r));
  if (propagation.values.empty()) return "signal_propagation: this model has no values to measure\n";
  return "residual stream before the first step, mean squares\n" + stream.print(2, STDERR_FILENO) +
         broken_line("inside: attention values and head outputs, hidden units before and after their activation F",
                     STDERR_FILENO) +
         inside.print(2, STDERR_FILENO) + "ratios of mean squares, measured and predicted by papers\n" +
         ratios.print(2, STDERR_FILENO);
}

}  // namespace orrery::program
