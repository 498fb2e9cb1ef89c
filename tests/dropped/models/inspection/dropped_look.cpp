// A table of the size of the residual stream after each sublayer.
#include "engine/ops/ops.h"
#include "engine/types/wording.h"
#include "models/inspection/base/look.h"

namespace orrery::models {
namespace {

void look(std::vector<View>& views, const Subject& subject, const LookSettings&) {
  TableView table{{"sublayer", "mean |x|"}, "lr", {}};
  for (const Seen& seen : see(subject, "residual"))
    table.rows.push_back({seen.path, fixed(mean(absolute(seen.value)).item(), 3)});
  if (!table.rows.empty()) views.push_back({"Dropped", "", "Size of the stream", "", std::move(table)});
}

REGISTER_LOOK(dropped_look, {.name = "dropped_look", .description = "how large the residual stream is", .look = look});

}  // namespace
}  // namespace orrery::models
