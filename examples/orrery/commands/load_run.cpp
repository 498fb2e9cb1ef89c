#include "examples/orrery/commands/load_run.h"

#include "engine/system/files.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/progress.h"
#include "models/catalogue/plugins.h"
#include "models/data/tokenizer.h"
#include "models/language_model.h"
#include "models/study/run_contents.h"
#include "models/training/memory_plan.h"
#include "models/training/resume.h"
#include "models/training/run_folder.h"

namespace orrery::program {
namespace {

// Returns the given folder if it is a checkpoint, else the newest checkpoint of the run.
std::string find_checkpoint(const std::string& command, const std::string& folder) {
  check_usage(!folder.empty(), command, ": no model is given; give the folder of a run, as in orrery ", command,
              " runs/latest");
  check(folder_exists(folder), command, ": there is no folder ", folder, "; orrery train --out=DIR creates one");
  if (file_exists(folder + "/state.json")) return folder;
  const std::string latest = models::latest_checkpoint(folder, true);
  check(!latest.empty(), command, ": ", folder,
        " has no checkpoint; give the folder of a run or of one of its checkpoints");
  return latest;
}

// Rejects a state.json whose model has more parameters than the weights, before it is allocated.
void check_model_size(const std::string& command, const models::TrainSettings& described, const std::string& weights) {
  const auto bytes = static_cast<int64_t>(FileReader(weights).size());
  check(models::count_parameters(described, bytes / 2).has_value(), command, ": ", weights, " has ", bytes,
        " bytes, too few for the model that state.json describes (", described.model,
        "); the checkpoint is damaged, use another one");
}

LoadedRun read_checkpoint(const std::string& command, const std::string& checkpoint) {
  models::CheckpointState state = models::read_state(checkpoint);
  LoadedRun trained{models::TrainSettings(), std::move(state.tokenizer), nullptr, state.version};
  models::with_plugin_hint(checkpoint + "/..", [&] {
    trained.settings = models::make_settings(state.settings);
    trained.trained_on = models::training_data(state);
    trained.held_out = models::held_out_data(state), trained.step = state.step;
    check_model_size(command, trained.settings, checkpoint + "/weights.safetensors");
    trained.model = models::make_model(trained.settings);
  });
  for (const std::string& file : models::changed_plugins(state))
    warn("the plug-in " + file + " differs from the one that " + checkpoint +
         " was trained with: its formula may have changed");
  models::load_weights(checkpoint, *trained.model);
  // A model trained on generated data has no tokenizer: its texts are token ids.
  const auto* const lm = dynamic_cast<const models::LanguageModel*>(trained.model.get());
  if (lm && trained.tokenizer == "{}") trained.tokenizer = models::saved_token_ids(lm->vocabulary());
  return trained;
}

}  // namespace

std::string take_run(const std::string& checkpoint, std::vector<std::string>& words) {
  if (!checkpoint.empty() || words.empty()) return checkpoint;
  const std::string run = words[0];
  words.erase(words.begin());
  return run;
}

void warn_about_data(const LoadedRun& trained, const models::Task& task) {
  if (trained.held_out.sha256.empty() || trained.held_out == task.fingerprint()) return;
  warn(text(task.data(), " (", task.fingerprint().bytes, " bytes) has changed since the run read it (",
            trained.held_out.bytes, " bytes): what it holds out now may be data that the model was trained on"));
}

void warn_about_version(const std::string& run, const std::string& version) {
  if (const std::string found = models::version_note(run, version); !found.empty()) warn(found);
}

LoadedRun load_run(const std::string& command, const std::string& folder) {
  const auto find = [&] { return find_checkpoint(command, folder); };
  const auto read = [&](const std::string& checkpoint) {
    return as_content([&] { return read_checkpoint(command, checkpoint); });
  };
  const Progress progress("reading " + folder);
  return models::read_newest(find, read);
}

models::TaskOptions evaluation_options(const LoadedRun& trained) {
  return {.batch_size = trained.settings.batch_size,
          .micro_batches = trained.settings.gradient_accumulation_steps,
          .seed = static_cast<uint64_t>(trained.settings.seed),
          .tokenizer = trained.tokenizer,
          .purpose = models::Purpose::evaluate,
          .bleu = false};
}

}  // namespace orrery::program
