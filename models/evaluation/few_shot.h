// Few-shot evaluation of a trained model: a linear probe (probe.h) on its features (features.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/evaluation/features.h"
#include "models/evaluation/probe.h"

namespace orrery::models {

// Labelled examples in a training and a test split.
class ProbeExamples {
 public:
  enum class Split { train, test };
  virtual ~ProbeExamples() = default;
  // Returns the features (n, D) of these examples of a split.
  virtual Tensor features(const FeatureReader& read, Split split, std::span<const int64_t> indices,
                          const std::function<void(size_t done)>& progress) const = 0;

  std::string owner;  // path of the data, as in errors
  std::vector<std::string> classes;
  std::vector<int32_t> train_labels, test_labels;
  std::vector<std::string> notes = {};  // sentences about examples that were not read as intended
};

struct ProbeData {
  std::string data, test_data = {};  // test_data empty: the test split of `data`, or a fraction of it
  double test_fraction = 0.1;        // of each class, at its end, if the data have no test split
  bool skip_broken = false;          // images
  std::vector<double> pixel_mean = {}, pixel_std = {};
  int64_t image_size = 0;
  std::string tokenizer = {}, text_column = {}, label_column = {};  // texts
};
// Throws Error if the data cannot be read, or test examples have a class that the others lack.
std::unique_ptr<ProbeExamples> probe_images(const ProbeData& from, int64_t channels);
std::unique_ptr<ProbeExamples> probe_texts(const ProbeData& from, int64_t context);

struct FewShotSettings {
  int64_t shots = 10, seeds = 3;
};

struct FewShot {
  struct Seed {
    std::vector<int32_t> shots;  // rows of `train`, class after class
    FittedProbe probe;
  };
  int64_t shots = 0, classes = 0;
  std::string layer = {};                  // of the features
  std::vector<std::string> notes = {};     // of the examples
  LabelledFeatures train = {}, test = {};  // train: the shots of all seeds, each once
  std::vector<int64_t> indices = {};       // of the rows of `train` in the training split
  std::vector<Seed> seeds = {};

  double accuracy() const;   // mean over the seeds
  double deviation() const;  // sample standard deviation over the seeds; NaN for one seed
};

// Throws Error unless there are two classes, test examples, and `shots` training examples of each class.
void check_few_shot(const ProbeExamples& examples, int64_t shots);
// Seed i, from 1, draws its own shots. `progress` gets the fraction of the examples that are done.
FewShot evaluate_few_shot(const ProbeExamples& examples, const FeatureReader& read, const FewShotSettings& settings,
                          const std::function<void(double fraction)>& progress = {});

}  // namespace orrery::models
