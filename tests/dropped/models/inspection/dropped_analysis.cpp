// A table of the size of the residual stream after each sublayer.
#include "engine/ops/ops.h"
#include "engine/types/format.h"
#include "models/inspection/base/analysis.h"

namespace orrery::models {
namespace {

void analyze(std::vector<View>& views, const InspectedExample& subject, const AnalysisSettings&) {
  TableView table{{"sublayer", "mean |x|"}, "lr", {}};
  for (const Captured& captured : capture(subject, "residual"))
    table.rows.push_back({captured.path, fixed(mean(abs(captured.value)).item(), 3)});
  if (!table.rows.empty()) views.push_back({"Dropped", "", "Size of the stream", "", std::move(table)});
}

REGISTER_ANALYSIS(dropped_analysis,
                  {.name = "dropped_analysis", .description = "how large the residual stream is", .analyze = analyze});

}  // namespace
}  // namespace orrery::models
