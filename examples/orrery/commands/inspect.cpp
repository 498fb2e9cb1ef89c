// orrery inspect: analyzes a trained model on one example.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/autograd/hooks.h"
#include "engine/system/files.h"
#include "engine/system/parallel.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/edits_argument.h"
#include "examples/orrery/commands/example_argument.h"
#include "examples/orrery/commands/inspect_corpus.h"
#include "examples/orrery/commands/inspect_many.h"
#include "examples/orrery/commands/inspect_output.h"
#include "examples/orrery/commands/inspect_settings.h"
#include "examples/orrery/commands/text_bounds.h"
#include "examples/orrery/page/report_page.h"
#include "examples/orrery/page/source_files.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/table.h"
#include "examples/orrery/terminal/view_json.h"
#include "examples/orrery/terminal/view_printer.h"
#include "models/former_names.h"
#include "models/hook_names.h"
#include "models/inspection/base/analysis.h"
#include "models/interop/npy.h"
#include "models/model.h"
#include "models/reports/report_components.h"
#include "models/reports/report_views.h"
#include "models/training/memory_plan.h"
#include "models/training/settings.h"

namespace orrery::program {
namespace {

// Returns the values of all matching hooks; a repeated name gets a number.
std::vector<NamedArray> captured(const models::InspectedExample& inspected, const std::string& patterns) {
  std::vector<NamedArray> all;
  std::map<std::string, int> times;
  const std::vector<std::string> given = split_list(patterns);
  const Hooks hooks(models::hook_patterns(given), [&](const std::string& name, const Tensor& value) {
    const int before = times[name]++;
    all.push_back(hook_array(inspected, name, before == 0 ? name : text(name, ".", before),
                             value.to(Device::cpu).clone()));
  });
  inspected.run();
  as_usage([&] { models::check_all_matched(hooks, given); });
  return all;
}

// A captured value without its elements.
struct ValueSummary {
  std::string name, dtype;
  Shape shape;
  models::ValueRange range;
  Json axes;
};
std::vector<ValueSummary> summaries_of(const std::vector<NamedArray>& values) {
  std::vector<ValueSummary> all;
  for (const NamedArray& each : values) {
    const auto& [path, tensor] = each.tensor;
    const std::string dtype = name(tensor.dtype());
    const models::ValueRange range = models::range_of({path, dtype, {}, tensor, {}});
    all.push_back({path, dtype, tensor.shape(), range, each.names.value("axes", Json())});
  }
  return all;
}

std::string list_of(const std::vector<ValueSummary>& values) {
  Table table({"value", "dtype", "shape", "min", "max", "mean"}, "lllrrr");
  for (const ValueSummary& each : values)
    table.add(
        {each.name, each.dtype, text(each.shape), text(each.range.low), text(each.range.high), text(each.range.mean)});
  return table.print(0);
}

Json json_of(const std::vector<ValueSummary>& values) {
  Json all = Json::array();
  for (const ValueSummary& each : values)
    all.push_back({{"name", each.name},
                   {"dtype", each.dtype},
                   {"shape", sizes_of(each.shape)},
                   {"axes", each.axes},
                   {"min", json_number(each.range.low)},
                   {"max", json_number(each.range.high)},
                   {"mean", json_number(each.range.mean)},
                   {"non_finite", each.range.not_finite}});
  return all;
}

// Rejects options of an analysis that is not requested, which would have no effect.
void check_analyses_use(const InspectSettings& s) {
  std::vector<std::string> analyses = split_list(s.analyses);
  for (std::string& name : analyses) name = models::with_current_metrics(name);
  const auto requested = [&](const std::vector<std::string>& names) {
    return s.analyses == "all" || std::find_first_of(analyses.begin(), analyses.end(), names.begin(), names.end()) !=
                                      analyses.end();
  };
  const auto check_used = [&](const std::string& value, const char* key, const std::vector<std::string>& names) {
    const bool one = names.size() == 1;
    check_usage(value.empty() || requested(names), "inspect: --", key, " is for the ", one ? "analysis " : "analyses ",
                join(names), one ? ", which is not" : ", of which none is", " requested; add --analysis=", names[0],
                ", or leave --", key, " out");
  };
  if (s.edits.empty()) check_used(s.patch_from, "patch_from", {"ablation", "head_patching"});
  check_used(s.corpus, "corpus", {"neurons"});
  const std::vector<std::string> of_answers = {"logit_attribution", "gradient_times_input", "head_patching",
                                               "ablation"};
  check_used(s.analysis.answer, "answer", of_answers), check_used(s.analysis.against, "against", of_answers);
  check_usage(s.analysis.key < 0 || requested({"attention_score"}),
              "inspect: --key is for the analysis attention_score, which is not requested; add "
              "--analysis=attention_score, or leave --key out");
  check_usage(!s.patch_from.empty() || s.analyses == "all" || !requested({"head_patching"}),
              "inspect: head_patching takes values from a second example; give one with --patch_from");
}

// Returns true if the user gives input, also an empty text.
bool gives_input(const ExampleArgument& example, const Arguments& arguments) {
  const bool empty = std::any_of(arguments.begin(), arguments.end(), [](const std::string& word) {
    return word == "--text=" || word == "--image=" || word == "--source=";
  });
  return example.given() || empty || example.label >= 0 || !example.target.empty();
}

// Returns the user's example, else a held-out example of the run.
std::unique_ptr<models::InspectedExample> example_for(const LoadedRun& trained, const ExampleArgument& example,
                                                      const Arguments& arguments) {
  const int64_t number = held_out_number("inspect", example);
  if (gives_input(example, arguments)) return make_example("inspect", trained, example);
  const HeldOutExamples held_out("inspect", trained);
  if (auto found = held_out.at(number, trained)) {
    if (example.held_out.empty())
      note(text("the example is the first of ", with_commas(held_out.count()),
                " in the run's held-out data; choose "
                "another with --example=held_out:N, or give one with --text, --image or --source"));
    return found;
  }
  check(example.held_out.empty(), "inspect: --example=", example.held_out,
        ": this run has no held-out data of examples "
        "with at most ",
        max_own_tokens, " tokens; give an example with --text, --image or --source");
  return make_example("inspect", trained, example);
}

// Returns the example's name in files.
std::string name_of(const ExampleArgument& example, const models::InspectedExample& inspected) {
  if (inspected.left_out() > 0) return describe_cut(inspected);
  return example.given() ? "given" : text("held_out:", held_out_number("inspect", example));
}

// Rejects arguments that are for one example, or for one checkpoint.
void check_many(const InspectSettings& s, bool gives_example) {
  if (s.is_one()) return;
  const std::string many = s.examples > 0 ? text("--examples=", s.examples) : "--checkpoints=all";
  const auto refuse = [&](bool given, const char* which) {
    check_usage(!given, "inspect: ", many, " summarizes metrics, and ", which,
                " is for one example at one checkpoint; leave one of them out");
  };
  if (s.examples > 0)
    refuse(gives_example || !s.example.held_out.empty(), "--example, --text, --image, --label, --source or --target");
  refuse(!s.hooks.empty(), "--hooks"), refuse(!s.patch_from.empty(), "--patch_from");
  refuse(!s.corpus.empty(), "--corpus");
}

models::ExampleSettings second_example(const InspectSettings& s, const nn::Module& model) {
  models::ExampleSettings patch_from = s.example;
  const bool images = dynamic_cast<const models::ImageModel*>(&model) != nullptr,
             translator = dynamic_cast<const models::TranslationModel*>(&model) != nullptr;
  (images ? patch_from.image : translator ? patch_from.source : patch_from.text) = s.patch_from;
  return patch_from;
}

InspectResults analyze_one(const LoadedRun& trained, InspectSettings& s, const std::string& run,
                           const Arguments& arguments) {
  const auto inspected = example_for(trained, s.example, arguments);
  check_input_kind("inspect", trained, s.example);
  std::unique_ptr<models::InspectedExample> patch_from;
  if (!s.patch_from.empty())
    patch_from = make_example("inspect", trained, second_example(s, *trained.model)),
    s.analysis.patch_from = patch_from.get();
  std::vector<std::unique_ptr<models::InspectedExample>> chunks;
  if (!s.corpus.empty()) chunks = corpus_chunks(s.corpus, trained, *inspected);
  for (const auto& chunk : chunks) s.analysis.corpus.push_back(chunk.get());
  models::Edits edits(s.edits, *trained.model);
  check_usage(patch_from || !edits.needs_other(), "inspect: --edits=", s.edits,
              " needs the value of another example; give one with --patch_from");
  if (patch_from) edits.learn_other(*patch_from, *inspected);
  edits.learn_means("the positions of this example", [&] { inspected->run(); });
  edits.begin();
  InspectResults results;
  {
    Progress progress("analyzing " + run);
    s.analysis.progress = [&](const std::string& done, double fraction) { progress.fraction(done, fraction); };
    results.views = analyze_or_all(*inspected, s.analyses, s.analysis);
  }
  if (!s.hooks.empty()) results.arrays = captured(*inspected, s.hooks);
  edits.check_applied();
  results.origin = origin_of(run, name_of(s.example, *inspected), *inspected);
  add_edits(results.origin, edits);
  return results;
}

void print_results(const std::vector<ValueSummary>& captured, const std::vector<models::View>& views,
                   const models::Json& origin) {
  if (const std::string edits = describe_edits(origin); !edits.empty()) std::cout << edits << "\n\n";
  if (!captured.empty()) std::cout << list_of(captured);
  for (const models::View& view : views)
    if (!view.plot_only) std::cout << view_text(view) << "\n";
}

Json json_of(const std::string& run, const std::vector<ValueSummary>& captured, const std::vector<models::View>& views,
             const models::Json& origin) {
  Json all = Json::array();
  for (const models::View& view : views) all.push_back(view_json(view));
  return {{"run", run},
          {"edits", origin.value("edits", Json())},
          {"mean_over", origin.value("mean_over", Json())},
          {"values", json_of(captured)},
          {"views", all},
          {"metrics", json_numbers(metrics_of(views))}};
}

}  // namespace

CommandHelp inspect_help(const Arguments&) {
  InspectSettings settings;
  std::string analyses;
  for (const auto& [name, analysis] : models::analyses()) analyses += "  " + name + ": " + analysis.description + "\n";
  return {
      "RUN is the folder of a run, whose last checkpoint is used, or of a checkpoint.  The default example is the "
      "first of the run's held-out data (--example=held_out:N: example N).  If the model supports none of the default "
      "analyses, all are tried; with "
      "--hooks and without --html none is run.",
      describe(settings_of(settings)), "Analyses:\n" + analyses,
      "orrery inspect runs/quickstart-1 --text=\"First Citizen:\" --analysis=attention --layer=0 --head=0"};
}

int inspect(const Arguments& arguments) {
  InspectSettings s;
  const std::vector<std::string> words = read_arguments("inspect", arguments, settings_of(s));
  check_usage(words.size() == 1, "inspect: ", words.size(),
              " runs are given; give one, as in orrery inspect runs/latest --text=\"First Citizen:\"");
  if (!s.out.empty()) check_out(s.out);
  const PageOutput html{"inspect", s.html, "--html"};
  if (!s.html.empty()) html.check_free();
  const SourceLinks links("inspect", s.html, s.source_url);
  check_usage(s.source_url.empty() || !s.html.empty(),
              "inspect: --source_url is for a page; add --html=FILE.html, or leave it out");
  if (s.analyses.empty() && (s.hooks.empty() || !s.html.empty()))
    s.analyses = !s.is_one() ? default_of_many : s.html.empty() ? default_analyses : page_analyses;
  const bool gives_example = gives_input(s.example, arguments);
  check_many(s, gives_example);
  check_analyses_use(s);
  if (s.threads > 0) set_thread_count(static_cast<int>(s.threads));
  JsonOutput json(s.json);
  LoadedRun trained = load_run("inspect", words[0]);
  apply_bounds("inspect", s.begin, trained);
  warn_about_version(words[0], trained.version);
  const models::HostMemoryLimit limit;  // an error instead of the system's kill
  InspectResults results = s.checkpoints == "all" ? analyze_checkpoints(trained, s, words[0], gives_example)
                    : s.examples > 0       ? analyze_many(trained, s, words[0])
                                           : analyze_one(trained, s, words[0], arguments);
  links.add_to(results.views);
  const std::vector<ValueSummary> captured = summaries_of(s.hooks.empty() ? std::vector<NamedArray>() : results.arrays);
  if (!json) print_results(captured, results.views, results.origin);
  check(!results.views.empty() || !s.hooks.empty(), "inspect: this model does not support ", s.analyses,
        "; --analysis=all runs those that it supports, and --hooks=* lists its values");
  for (NamedArray& each : arrays_of(results.views)) results.arrays.push_back(std::move(each));
  if (!s.out.empty()) write_out(s.out, results.arrays, models::metrics_of(results.views), results.origin);
  if (!s.html.empty()) {
    models::Json sections = models::Json::array();
    add_views(sections, results.views);
    if (s.is_one()) add_components(sections, std::vector{models::resolved(trained.settings)}, links);
    sections.push_back(command_section("inspect", arguments));
    sections.push_back(environment_section({}));
    const std::string edits = describe_edits(results.origin);
    write_page(html, "Analysis of " + words[0] + (edits.empty() ? "" : ", " + edits), std::move(sections));
  }
  if (json) json.print(json_of(words[0], captured, results.views, results.origin));
  std::cout << std::flush;
  return 0;
}

}  // namespace orrery::program
