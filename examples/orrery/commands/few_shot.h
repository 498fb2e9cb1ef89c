// Few-shot evaluation of a run: for orrery evaluate --few_shot, and claims with [few_shot].
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "examples/orrery/commands/load_run.h"
#include "examples/orrery/terminal/json_output.h"
#include "models/evaluation/few_shot.h"

namespace orrery::program {

struct FewShotOptions {
  int64_t few_shot = 0, seeds = 3;
  std::string features = {}, out = {}, text_column = "text", label_column = "label";

  template <class V>
  void visit(V& v) {
    v("few_shot", few_shot,
      "fit a linear probe to this many labelled examples (shots) per class of data; 0: evaluate the model",
      between(0, 1e6));
    v("features", features,
      "layer whose states the probe of few_shot gets, as blocks.3; if not given, the one before the head");
    v("text_column", text_column, "language models: column or JSON member of the texts of few_shot");
    v("label_column", label_column, "language models: column or JSON member of the labels of few_shot");
    v("seeds", seeds, "number of seeds of few_shot; each draws its own shots", between(1, 1000));
    v("out", out, "FILE.safetensors: features, labels, shots and weights of few_shot");
  }
};

// Evaluates the model on labelled data. `task` holds the paths and how images are scaled: the
// settings of the run's task, with the user's changes; `when_read` as in models/evaluation/features.h.
models::FewShot evaluate_few_shot(const LoadedRun& trained, const AnySettings& task, const FewShotOptions& options,
                                  const std::function<void(const std::string& name)>& when_read = {},
                                  const std::function<void(double fraction)>& progress = {});

// Throws if a model with these settings, once trained, could not be evaluated on the data of `task`: they
// cannot be read, lack a column, or have too few examples. Reads them; images are read at a small size.
void check_few_shot_data(const models::TrainSettings& settings, const AnySettings& task,
                         const FewShotOptions& options);

// Throws if `out` cannot be written.
void check_few_shot_output(const FewShotOptions& options);
void write_few_shot(const std::string& out, const models::FewShot& found);
void print_few_shot(const models::FewShot& found);
Json few_shot_json(const models::FewShot& found);

}  // namespace orrery::program
