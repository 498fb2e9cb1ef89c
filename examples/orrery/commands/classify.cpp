// orrery classify: predicts the classes of images.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>

#include "engine/autograd/autograd.h"
#include "engine/settings/registry.h"
#include "engine/system/files.h"
#include "engine/system/folders.h"
#include "engine/system/parallel.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/image_reader.h"
#include "examples/orrery/commands/edits_argument.h"
#include "examples/orrery/commands/load_run.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/json_output.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/table.h"
#include "models/data/image_file_tally.h"
#include "models/image_model.h"
#include "models/model.h"

namespace orrery::program {
namespace {

struct ClassifySettings {
  std::string checkpoint, edits, device = "cpu";
  int64_t top = 1, threads = 0;
  bool skip_broken = false, json = false;

  template <class V>
  void visit(V& v) {
    v("checkpoint|out_dir", checkpoint, "another way to give RUN: the folder of a run or of one checkpoint");
    v("top", top, "number of most likely classes to print per image", between(1, 1e6));
    v("skip_broken", skip_broken, "list images that cannot be decoded among the others, without an error");
    v("edits", edits, edits_help);
    v("json", json, json_help);
    v("threads", threads, "cores to use; 0: OMP_NUM_THREADS, else all", between(0, 1024));
    v("device", device, "cpu or cuda", one_of({"cpu", "cuda"}));
  }
};

// Returns the path, or the PNG and JPEG files in a folder and its subfolders.
std::vector<std::string> image_files(const std::string& path) {
  if (!folder_exists(path)) return {path};
  std::vector<std::string> images;
  models::ImageFileTally tally;
  for (const std::string& file : files_below(path))
    if (models::is_image_file(file))
      images.push_back(file);
    else
      tally.leave_out(file);
  warn(tally.notes(path));
  return images;
}

class Classifier {
 public:
  Classifier(const ClassifySettings& s, Device device)
      : trained_(load_run("classify", s.checkpoint)),
        model_(models::model_as<models::ImageModel>(*trained_.model, "classify",
                                                    "an image model; give a run of one, such as --model=vit-fashion")),
        classes_(models::restore_classes(trained_.tokenizer)),
        images_(trained_, model_),
        device_(device),
        sigmoid_(models::setting_of<std::string>(trained_.settings.task_settings, "loss") == "sigmoid") {
    nn::move(model_, device);
    edits_ = begin_edits("classify", s.edits, model_, models::Passes::whole);
    note_edits(*edits_);
  }

  // Returns the most likely classes and their probabilities, sorted. Outputs without a class name
  // are excluded before normalization, like token ids that a tokenizer lacks.
  std::vector<std::pair<std::string, double>> classify(const std::string& path, int64_t top) {
    const NoGrad guard;
    nn::ForwardPass pass;
    const Tensor pixels = images_.read(path);
    std::vector<double> scores = model_(pixels.to(device_), pass).to_vector();
    scores.resize(std::min(scores.size(), classes_.size()));
    const std::vector<double> probabilities = to_probabilities(std::move(scores));
    std::vector<size_t> order(probabilities.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return probabilities[a] > probabilities[b]; });
    order.resize(std::min(order.size(), static_cast<size_t>(top)));
    std::vector<std::pair<std::string, double>> most_likely;
    for (const size_t k : order) most_likely.emplace_back(classes_[k], probabilities[k]);
    return most_likely;
  }

  const models::Edits& edits() const { return *edits_; }
  void warn_of_rotated_images() const { images_.warn_of_rotated_images(); }

 private:
  std::vector<double> to_probabilities(std::vector<double> z) const {
    const double largest = *std::max_element(z.begin(), z.end());
    for (double& x : z) x = sigmoid_ ? 1 / (1 + std::exp(-x)) : std::exp(x - largest);
    const double sum = sigmoid_ ? 1 : std::accumulate(z.begin(), z.end(), 0.0);
    for (double& x : z) x /= sum;
    return z;
  }

  LoadedRun trained_;
  models::ImageModel& model_;
  std::vector<std::string> classes_;
  ImageReader images_;
  Device device_;
  bool sigmoid_;
  std::unique_ptr<models::Edits> edits_;
};

// The most likely classes of an image, or the reason why it cannot be read.
struct Classified {
  std::string path;
  std::vector<std::pair<std::string, double>> classes = {};
  std::string error = "";
};
Classified classified(Classifier& classifier, const std::string& path, int64_t top) {
  try {
    return {path, classifier.classify(path, top)};
  } catch (const Error& error) {
    return {.path = path, .error = error.what()};
  }
}

void print_classes(const Classified& image) {
  std::cout << (image.error.empty() ? for_terminal(image.path) : "left out: " + for_terminal(image.error));
  for (const auto& [name, probability] : image.classes)
    std::cout << "  " << for_terminal(name) << " " << fixed(probability, 4);
  std::cout << std::endl;
}

Json json_of(const Classified& image, const models::Edits& edits) {
  Json classes = Json::array();
  for (const auto& [name, probability] : image.classes)
    classes.push_back({{"class", name}, {"probability", json_number(probability)}});
  Json all = {{"path", image.path}, {"classes", classes}, {"error", image.error.empty() ? Json() : Json(image.error)}};
  add_edits(all, edits);
  return all;
}

}  // namespace

CommandHelp classify_help(const Arguments&) {
  ClassifySettings settings;
  return {"RUN is the folder of a run, whose last checkpoint is used, or of a checkpoint.",
          describe(settings_of(settings)), "",
          "orrery classify runs/latest photos --top=3"};
}

int classify(const Arguments& arguments) {
  ClassifySettings s;
  std::vector<std::string> images;
  std::vector<std::string> words = read_arguments("classify", arguments, settings_of(s));
  s.checkpoint = take_run(s.checkpoint, words);
  check_usage(!words.empty(),
              "classify: there is no image to classify; give PNG or JPEG files, or folders with such files, after the "
              "run");
  for (const std::string& word : words)
    for (std::string& path : image_files(word)) images.push_back(std::move(path));
  check(!images.empty(), "classify: ", join(words), ": there is no image to classify; give PNG or JPEG files");
  if (s.threads > 0) set_thread_count(static_cast<int>(s.threads));
  const Device device = parse_device(s.device);
  check_available(device);
  Classifier classifier(s, device);
  JsonOutput json(s.json);
  Json all = Json::array();
  int code = 0;
  Progress progress("classifying", s.json ? Progress::Results::at_the_end : Progress::Results::shown_at_once);
  double done = 0;
  for (const std::string& path : images) {
    progress.fraction("classified", done++ / static_cast<double>(images.size()));
    const Classified image = classified(classifier, path, s.top);
    if (!image.error.empty() && !s.skip_broken) {
      print_message("classify: image left out: " + for_terminal(image.error));
      code = 1;
    } else if (!json) {
      print_classes(image);
    }
    if (json) all.push_back(json_of(image, classifier.edits()));
  }
  classifier.warn_of_rotated_images();
  if (code == 0) classifier.edits().check_applied();
  if (json) json.print(all);
  return code;
}

}  // namespace orrery::program
