#include "examples/orrery/commands/edits_argument.h"

#include <nlohmann/json.hpp>

#include "engine/types/usage_error.h"
#include "examples/orrery/terminal/messages.h"
#include "models/architectures/stream_model.h"
#include "models/translation_model.h"

namespace orrery::program {

std::unique_ptr<models::Edits> begin_edits(const std::string& command, const std::string& edits, nn::Module& model,
                                           models::Passes passes) {
  auto all = std::make_unique<models::Edits>(edits, model, passes);
  check_usage(!all->needs_other(), command, ": --edits=", edits,
              " needs the value of another example; give one to orrery inspect with --patch_from");
  all->begin();
  return all;
}

models::Passes passes_of_validation(const nn::Module& model) {
  return dynamic_cast<const models::StreamModel*>(&model)        ? models::Passes::stream
         : dynamic_cast<const models::TranslationModel*>(&model) ? models::Passes::decoding
                                                                 : models::Passes::whole;
}

void add_edits(models::Json& to, const models::Edits& edits) {
  if (!edits.given().empty()) to["edits"] = edits.given();
  if (const std::string over = edits.mean_over(); !over.empty()) to["mean_over"] = over;
}

std::string describe_edits(const models::Json& of) {
  const std::string edits = of.value("edits", ""), over = of.value("mean_over", "");
  return edits.empty() ? "" : "edits: " + edits + (over.empty() ? "" : ", with means over " + over);
}
std::string describe(const models::Edits& edits) {
  models::Json all = models::Json::object();
  add_edits(all, edits);
  return describe_edits(all);
}
void note_edits(const models::Edits& edits) {
  if (const std::string all = describe(edits); !all.empty()) note(all);
}

}  // namespace orrery::program
