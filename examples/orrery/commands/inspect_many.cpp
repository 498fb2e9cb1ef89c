#include "examples/orrery/commands/inspect_many.h"

#include <algorithm>
#include <optional>

#include "engine/system/files.h"
#include "engine/types/format.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/edits_argument.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/progress.h"
#include "models/inspection/base/analysis.h"
#include "models/study/example_metrics.h"
#include "models/training/checkpoint.h"
#include "models/training/run_folder.h"

namespace orrery::program {
namespace {

// Returns the metrics of s.examples evenly spread examples, or of one example.
models::ExampleMetrics metrics_at(const LoadedRun& trained, const HeldOutExamples* held_out, const InspectSettings& s,
                                  const std::string& checkpoint, models::Json& origin) {
  Progress progress("analyzing " + checkpoint);
  models::AnalysisSettings settings = s.analysis;
  settings.of_many = true;
  models::ExampleMetrics metrics;
  const auto add = [&](const std::string& name, const models::InspectedExample& example) {
    metrics.add(name, analyze(example, s.analyses, settings));
  };
  const int64_t all = held_out ? held_out->count() : 0, first = held_out_number("inspect", s.example);
  check_usage(s.examples <= all, "inspect: --examples=", s.examples, ", but the held-out data of this run have ",
              pluralize(all, "example"),
              all > 0 ? text("; use --examples=", all, " or fewer") : "; leave --examples out and give an example");
  const auto number_of = [&](int64_t i) { return i * all / s.examples; };
  std::unique_ptr<models::InspectedExample> one;
  if (s.examples == 0) one = all > 0 ? held_out->at(first, trained) : make_example("inspect", trained, s.example);
  models::Edits edits(s.edits, *trained.model);
  check_usage(!edits.needs_other(), "inspect: --edits=", s.edits,
              " needs the value of another example, with --patch_from; leave --examples and --checkpoints out");
  edits.learn_means(s.examples > 0 ? text("the positions of ", pluralize(s.examples, "held-out example"))
                                   : "the positions of this example",
                    [&] {
                      for (int64_t i = 0; i < s.examples; ++i) held_out->at(number_of(i), trained)->run();
                      if (s.examples == 0) one->run();
                    });
  edits.begin();
  for (int64_t i = 0; i < s.examples; ++i) {
    const int64_t number = number_of(i);
    add(text("held_out:", number), *held_out->at(number, trained));
    progress.fraction(text("example ", i + 1), static_cast<double>(i + 1) / static_cast<double>(s.examples));
  }
  if (s.examples == 0) add("", *one);
  edits.check_applied();
  add_edits(origin, edits);
  check(!metrics.empty(), "inspect: --analysis=", s.analyses,
        " has no metrics of this model; choose from heads, logit_lens, logit_attribution, ablation, neurons and "
        "normalization_curves");
  return metrics;
}

std::string describe_many(int64_t examples, int64_t all, bool has_chance) {
  return text("Over ", with_commas(examples), " of the run's ", with_commas(all),
              " held-out examples, evenly spread: mean, standard deviation over the examples, and Student's 95 % "
              "interval of the mean.",
              has_chance ? "  Chance: equal weights on all visible keys, equal probabilities of all choices." : "");
}

}  // namespace

InspectResults analyze_many(const LoadedRun& trained, const InspectSettings& s, const std::string& run) {
  const HeldOutExamples held_out("inspect", trained);
  models::Json origin = {{"run", run}, {"example", text(s.examples, " of ", held_out.count(), " held-out examples")}};
  const models::ExampleMetrics metrics = metrics_at(trained, &held_out, s, run, origin);
  InspectResults results{metrics.views(), arrays_of(metrics.values()), origin};
  results.views[0].caption = describe_many(s.examples, held_out.count(), metrics.has_chance());
  return results;
}

InspectResults analyze_checkpoints(const LoadedRun& last, const InspectSettings& s, const std::string& run,
                                   bool gives_example) {
  check_input_kind("inspect", last, s.example);
  std::vector<std::string> checkpoints = models::checkpoints_in(run);
  check_usage(!checkpoints.empty(), "inspect: --checkpoints=all requires the folder of a run, and ", run,
              " has no checkpoints in it; give a run, or leave --checkpoints out");
  std::reverse(checkpoints.begin(), checkpoints.end());
  std::optional<HeldOutExamples> held_out;
  if (!gives_example) held_out.emplace("inspect", last);
  std::vector<models::StepMetrics> steps;
  models::Json origin = {{"run", run}};
  for (const std::string& checkpoint : checkpoints) {
    LoadedRun trained;
    try {
      trained = load_run("inspect", checkpoint);
    } catch (const Error&) {
      if (folder_exists(checkpoint)) throw;
      note(checkpoint + " is left out: the run, which is training, has removed it");
      continue;
    }
    apply_bounds("inspect", s.begin, trained);
    steps.push_back(
        {trained.step, metrics_at(trained, held_out ? &*held_out : nullptr, s, checkpoint, origin).means()});
  }
  check(!steps.empty(), "inspect: ", run, " has removed all checkpoints that it had; try again");
  InspectResults results{metrics_by_step(steps), {}, origin};
  results.views[0].caption =
      text("At the ", pluralize(static_cast<int64_t>(steps.size()), "checkpoint"), " that the run keeps",
           s.examples > 0 ? text(", means over ", s.examples, " held-out examples.") : ".");
  return results;
}

}  // namespace orrery::program
