// The example that `orrery inspect` and `orrery report` analyze.
#pragma once

#include <memory>
#include <string>

#include "examples/orrery/commands/load_run.h"
#include "models/inspection/base/analysis.h"
#include "models/inspection/base/example.h"
#include "models/tasks/base/task.h"

namespace orrery::program {

// The analyses of a terminal and of a page, if none are given.
inline const std::string default_analyses = "attention, heads, logit_lens",
                         page_analyses = "predictions, components, " + default_analyses +
                                         ", logit_attribution, gradient_times_input";
// Returns the views of the analyses. If the names are one of the above, and the model supports none of
// default_analyses, all analyses are tried.
std::vector<models::View> analyze_or_all(const models::InspectedExample& example, const std::string& names,
                                         const models::AnalysisSettings& settings);

// The input of a command: what the user gives, or an example of the run's held-out data.
struct ExampleArgument : models::ExampleSettings {
  std::string held_out;  // "held_out:17"; empty: held_out:0, if no other input is given

  template <class V>
  void visit(V& v) {
    v("example", held_out,
      "held_out:N: example N (from 0) of the run's held-out data: a window of the text, a pair, an image, a problem; "
      "if not given, held_out:0, unless --text, --image or --source is given");
    ExampleSettings::visit(v);
  }
};
// Returns N of held_out:N, 0 if it is empty. Throws if it is of another form or other input is given too.
int64_t held_out_number(const std::string& command, const ExampleArgument& example);

// Throws if input is missing or is not of the model's kind. The message begins with the command. A
// text beyond the context is cut, with a note, or refused.
std::unique_ptr<models::InspectedExample> make_example(const std::string& command, const LoadedRun& trained,
                                                       const models::ExampleSettings& example, bool may_cut = true);
// Returns a sentence about a text that was cut: its tokens, the context.
std::string describe_cut(const models::InspectedExample& example,
                         const std::string& consequence = "the example is its last tokens");

constexpr int64_t max_own_tokens = 64;  // limit for held-out examples: their maps stay legible

// The held-out examples of a run: consecutive windows of its text, pairs of short sentences, images,
// sequences of a problem.
class HeldOutExamples {
 public:
  // Reads the data of the run. Errors begin with the command.
  HeldOutExamples(const std::string& command, const LoadedRun& trained, int64_t max_tokens = max_own_tokens);
  int64_t count() const { return task_ ? task_->validation_examples(max_tokens_) : 0; }  // 0: the run has no data
  // Makes an example for the model of this run or of another checkpoint of it. Throws if there are
  // examples, but not this one; returns null if there are none.
  std::unique_ptr<models::InspectedExample> at(int64_t number, const LoadedRun& trained) const;
  // Returns the text, or the sentence and its translation, of an example that exists; empty for other inputs.
  models::ExampleSettings texts_at(int64_t number, const LoadedRun& trained) const;

 private:
  std::string command_;
  int64_t max_tokens_;
  std::unique_ptr<models::Task> task_;
};
// Returns the first path of the run's data that HeldOutExamples needs and that does not exist, or "".
std::string missing_data(const LoadedRun& trained);

// Throws if the example has input that this model does not read.
void check_input_kind(const std::string& command, const LoadedRun& trained, const models::ExampleSettings& example);

}  // namespace orrery::program
