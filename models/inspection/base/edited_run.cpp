#include "models/inspection/base/edited_run.h"

namespace orrery::models {

Tensor run_edited(const InspectedExample& example, std::vector<ValueEdit> edits) {
  const Hooks hooks(names_of(edits), replace_by(edits));
  return example.run();
}

}  // namespace orrery::models
