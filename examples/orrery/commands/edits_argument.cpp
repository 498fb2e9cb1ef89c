#include "examples/orrery/commands/edits_argument.h"

#include "engine/types/usage_error.h"

namespace orrery::program {

std::unique_ptr<models::Edits> begin_edits(const std::string& command, const std::string& edits, nn::Module& model,
                                           bool with_positions) {
  auto all = std::make_unique<models::Edits>(edits, model, with_positions);
  check_usage(!all->needs_other(), command, ": --edits=", edits,
              " needs the value of another example; give one to orrery inspect with --patch_from");
  all->begin();
  return all;
}

}  // namespace orrery::program
