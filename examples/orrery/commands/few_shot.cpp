#include "examples/orrery/commands/few_shot.h"

#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>

#include "engine/system/files.h"
#include "engine/tensor/safetensors.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/terminal/table.h"
#include "models/data/tokenizer.h"
#include "models/formats/output_file.h"
#include "models/image_model.h"
#include "models/language_model.h"
#include "models/model.h"

namespace orrery::program {
namespace {

constexpr const char *written_by = "written_by", *writer = "orrery evaluate";

models::OutputKind output_kind() {
  constexpr size_t length_of_header = 8;  // bytes
  return models::marked_kind("a file of orrery evaluate",
                             text("{\"__metadata__\":{\"", written_by, "\":\"", writer, "\"}"), "", length_of_header);
}

template <class T>
T value_of(const AnySettings& task, const char* key, T otherwise) {
  return find_setting(task.members(), key) ? models::setting_of<T>(task, key) : otherwise;
}

models::ProbeData probe_data(const AnySettings& task, const FewShotOptions& options, const std::string& tokenizer) {
  return models::ProbeData{.data = value_of<std::string>(task, "data", ""),
                           .test_data = value_of<std::string>(task, "validation_data", ""),
                           .test_fraction = value_of(task, "validation_fraction", 0.1),
                           .skip_broken = value_of(task, "skip_broken", false),
                           .pixel_mean = value_of<std::vector<double>>(task, "pixel_mean", {}),
                           .pixel_std = value_of<std::vector<double>>(task, "pixel_std", {}),
                           .tokenizer = tokenizer,
                           .text_column = options.text_column,
                           .label_column = options.label_column};
}

std::unique_ptr<models::ProbeExamples> read_examples(const LoadedRun& trained, const AnySettings& task,
                                                     const FewShotOptions& options) {
  models::ProbeData from = probe_data(task, options, trained.tokenizer);
  check_usage(!from.data.empty(), "evaluate: there are no labelled data for few_shot; give them with --data=PATH");
  if (const auto* const language = dynamic_cast<const models::LanguageModel*>(trained.model.get()))
    return models::probe_texts(from, language->context());
  from.image_size = models::setting_of<int64_t>(trained.settings.model_settings, "image_size");
  return models::probe_images(from, dynamic_cast<const models::ImageModel&>(*trained.model).channels());
}

std::string strength_text(double strength) { return text("2^", std::lround(std::log2(strength))); }

Tensor column(const std::vector<double>& values) {
  return Tensor::from(Shape{static_cast<int64_t>(values.size())}, values, Dtype::f64);
}
Tensor labels_of(const models::LabelledFeatures& of) {
  return Tensor::from(Shape{static_cast<int64_t>(of.labels.size())}, of.labels);
}

}  // namespace

models::FewShot evaluate_few_shot(const LoadedRun& trained, const AnySettings& task, const FewShotOptions& options,
                                  const std::function<void(const std::string& name)>& when_read,
                                  const std::function<void(double fraction)>& progress) {
  const models::FeatureReader read(*trained.model, options.features, when_read);
  const auto examples = read_examples(trained, task, options);
  return models::evaluate_few_shot(*examples, read, {.shots = options.few_shot, .seeds = options.seeds}, progress);
}

void check_few_shot_data(const models::TrainSettings& settings, const AnySettings& task,
                         const FewShotOptions& options) {
  // The run's tokenizer is not trained yet, and its image size may come from its data.
  const auto bytes = models::make_tokenizer("byte", [] { return std::string(); });
  models::ProbeData from = probe_data(task, options, bytes->save());
  from.image_size = 8, from.pixel_mean = {0.5}, from.pixel_std = {0.5};
  const bool of_images = find_setting(settings.model_settings.members(), "image_size") != nullptr;
  const auto examples = of_images ? models::probe_images(from, 1)
                                  : models::probe_texts(from, std::numeric_limits<int64_t>::max());
  models::check_few_shot(*examples, options.few_shot);
}

void check_few_shot_output(const FewShotOptions& options) {
  if (options.out.empty()) return;
  models::check_output("evaluate", options.out, output_kind());
  models::check_extension("evaluate", options.out, {".safetensors"});
  const std::string folder = std::filesystem::path(options.out).parent_path().string();
  check(folder.empty() || folder_exists(folder), "evaluate: cannot write ", options.out, ": there is no folder ",
        folder, "; create it, or choose another --out");
}

void write_few_shot(const std::string& out, const models::FewShot& found) {
  std::vector<double> strengths, accuracies, indices(found.indices.begin(), found.indices.end());
  std::vector<NamedTensor> all = {{"train.features", found.train.x},
                                  {"train.labels", labels_of(found.train)},
                                  {"train.indices", column(indices)},
                                  {"test.features", found.test.x},
                                  {"test.labels", labels_of(found.test)}};
  for (size_t i = 0; i < found.seeds.size(); ++i) {
    const models::FewShot::Seed& seed = found.seeds[i];
    all.push_back({text("seed.", i + 1, ".shots"),
                   Tensor::from(Shape{static_cast<int64_t>(seed.shots.size())}, seed.shots)});
    all.push_back({text("seed.", i + 1, ".weights"), seed.probe.weights});
    strengths.push_back(seed.probe.strength), accuracies.push_back(seed.probe.accuracy);
  }
  all.push_back({"strengths", column(strengths)});
  all.push_back({"accuracies", column(accuracies)});
  models::check_output("evaluate", out, output_kind());
  write_safetensors(out, all, {{written_by, writer}});
  std::cout << for_terminal(out) << ": " << pluralize(static_cast<int64_t>(all.size()), "tensor") << std::endl;
}

void print_few_shot(const models::FewShot& found) {
  std::cout << pluralize(found.shots, "shot") << " of each of " << with_commas(found.classes) << " classes, "
            << pluralize(found.test.x.size(0), "test example") << "\n"
            << with_commas(found.train.x.size(1)) << " features from " << for_terminal(found.layer) << "\n"
            << "accuracy " << fixed(found.accuracy(), 4);
  if (found.seeds.size() > 1) std::cout << ", deviation " << fixed(found.deviation(), 4);
  std::cout << "\n";
  Table table({"seed", "accuracy", "strength"}, "rrr");
  for (size_t i = 0; i < found.seeds.size(); ++i)
    table.add({text(i + 1), fixed(found.seeds[i].probe.accuracy, 4), strength_text(found.seeds[i].probe.strength)});
  std::cout << table.print() << std::flush;
}

Json few_shot_json(const models::FewShot& found) {
  Json seeds = Json::array();
  for (size_t i = 0; i < found.seeds.size(); ++i)
    seeds.push_back({{"seed", i + 1},
                     {"accuracy", json_number(found.seeds[i].probe.accuracy)},
                     {"strength", json_number(found.seeds[i].probe.strength)}});
  return {{"shots", found.shots},
          {"classes", found.classes},
          {"test_examples", found.test.x.size(0)},
          {"layer", found.layer},
          {"features", found.train.x.size(1)},
          {"accuracy", json_number(found.accuracy())},
          {"deviation", json_number(found.deviation())},
          {"seeds", seeds}};
}

}  // namespace orrery::program
