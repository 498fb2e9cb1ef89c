// orrery inspect: analyzes a trained model on one example.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>

#include "engine/autograd/hooks.h"
#include "engine/system/files.h"
#include "engine/system/folder_lock.h"
#include "engine/system/parallel.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/example_argument.h"
#include "examples/orrery/commands/text_argument.h"
#include "examples/orrery/commands/text_bounds.h"
#include "examples/orrery/page/report_page.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/table.h"
#include "examples/orrery/terminal/view_json.h"
#include "examples/orrery/terminal/view_printer.h"
#include "models/data/text_files.h"
#include "models/data/tokenizer.h"
#include "models/formats/csv.h"
#include "models/former_names.h"
#include "models/hook_names.h"
#include "models/inspection/base/analysis.h"
#include "models/interop/npy.h"
#include "models/model.h"
#include "models/reports/report_views.h"
#include "models/study/run_contents.h"
#include "models/training/memory_plan.h"

namespace orrery::program {
namespace {

struct InspectSettings {
  std::string analyses, hooks, out, html, patch_from, corpus;
  ExampleArgument example;
  models::AnalysisSettings analysis;
  TextBegin begin;
  int64_t threads = 0;
  bool json = false;

  template <class V>
  void visit(V& v) {
    example.visit(v);
    v("analysis|look", analyses,
      "analyses (below), comma-separated, or all; if not given, " + default_analyses + ", as far as available");
    v("layer", analysis.layer, "attention or feed-forward layer, in forward order, from 0; -1: all", between(-1, 1e6));
    v("head", analysis.head, "head of an attention, from 0; -1: all", between(-1, 1e6));
    v("slot|neuron", analysis.slot,
      "neuron (hidden unit of a feed-forward) or persistent slot (learned key and value), from 0; -1: those with the "
      "largest values",
      between(-1, 1e9));
    v("position|place", analysis.position,
      "position (token or patch) for logit_lens and ablation, from 0; -1: that of the highest loss, and the last",
      between(-1, 1e9));
    v("top", analysis.top, "entries printed per list", between(1, 1e6));
    v("patch_from|other", patch_from,
      "second example (text, image or source) to patch values from, for --analysis=ablation");
    v("corpus", corpus,
      "text as for train (16 MiB of a plain file), pipe or -, searched for top activations; default: the example");
    v("seed", analysis.seed, "random seed of examples that an analysis generates", between(0, models::max_seed));
    begin.visit(v);
    v("hooks", hooks,
      "values to capture, comma-separated, such as blocks.*.attention.weights; TransformerLens's names work too");
    v("out", out,
      "FILE.safetensors, or a folder for .npy files and metrics.csv: all values; FILE.csv: the metrics only");
    v("html|page", html, "FILE.html: a page with plots of the analyses");
    v("json", json, json_help);
    v("threads", threads, "cores to use; 0: OMP_NUM_THREADS, else all", between(0, 1024));
  }
};

// Returns the values of all matching hooks; a repeated name gets a number.
std::vector<NamedTensor> captured(const models::InspectedExample& inspected, const std::string& patterns) {
  std::vector<NamedTensor> all;
  std::map<std::string, int> times;
  const std::vector<std::string> given = split_list(patterns);
  const Hooks hooks(models::hook_patterns(given), [&](const std::string& name, const Tensor& value) {
    const int before = times[name]++;
    all.push_back({before == 0 ? name : text(name, ".", before), value.to(Device::cpu).clone()});
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
};
std::vector<ValueSummary> summaries_of(const std::vector<NamedTensor>& values) {
  std::vector<ValueSummary> all;
  for (const NamedTensor& each : values) {
    const std::string dtype = name(each.tensor.dtype());
    all.push_back({each.name, dtype, each.tensor.shape(), models::range_of({each.name, dtype, {}, each.tensor, {}})});
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

std::vector<int64_t> sizes_of(const Shape& shape) {
  std::vector<int64_t> sizes;
  for (int axis = 0; axis < shape.rank(); ++axis) sizes.push_back(shape[axis]);
  return sizes;
}

Json json_of(const std::vector<ValueSummary>& values) {
  Json all = Json::array();
  for (const ValueSummary& each : values)
    all.push_back({{"name", each.name},
                   {"dtype", each.dtype},
                   {"shape", sizes_of(each.shape)},
                   {"min", json_number(each.range.low)},
                   {"max", json_number(each.range.high)},
                   {"mean", json_number(each.range.mean)},
                   {"non_finite", each.range.not_finite}});
  return all;
}

// Adds maps as they are, and each line as two rows, x and y.
void add_numbers(std::vector<NamedTensor>& to, const std::vector<models::View>& views) {
  for (const models::View& view : views) {
    if (const auto* const map = std::get_if<models::MapView>(&view.data); map && !view.name.empty())
      to.push_back({view.name, map->values});
    const auto* const lines = std::get_if<models::LineView>(&view.data);
    if (!lines || view.name.empty()) continue;
    for (const models::LineView::Line& line : lines->lines) {
      std::vector<double> both = line.x;
      both.insert(both.end(), line.y.begin(), line.y.end());
      to.push_back(
          {view.name + "/" + line.name, Tensor::from(Shape{2, static_cast<int64_t>(line.x.size())}, both, Dtype::f64)});
    }
  }
}

constexpr const char *metrics_header = "metric,value\n", *former_metrics_header = "figure,value\n",
                     *written_by = "written_by";

// Each row begins with the name of an analysis.
models::OutputKind metrics_kind() {
  const std::string name = "a CSV file of metrics";
  const auto is_ours = [name](const std::string& path) {
    std::vector<std::string> analyses;
    for (const std::string& analysis : models::analyses().names()) {
      analyses.push_back(analysis);
      for (std::string& former : models::analyses().aliases(analysis)) analyses.push_back(std::move(former));
    }
    return std::any_of(analyses.begin(), analyses.end(), [&](const std::string& analysis) {
      return models::marked_kind(name, metrics_header + analysis + "/").is_ours(path) ||
             models::marked_kind(name, former_metrics_header + analysis + "/").is_ours(path);
    });
  };
  return {name, is_ours};
}
// Returns true if `out` is one file; a folder has a kind per file.
bool is_one_file(const std::string& out) { return out.ends_with(".safetensors") || out.ends_with(".csv"); }
models::OutputKind kind_of_file(const std::string& out) {
  constexpr size_t length_of_header = 8;  // bytes
  return out.ends_with(".csv")
             ? metrics_kind()
             : models::marked_kind("a file that orrery inspect wrote",
                                   text("{\"__metadata__\":{\"", written_by, "\":\"orrery inspect\"}"), "",
                                   length_of_header);
}

void write_metrics_csv(const std::string& path, const std::map<std::string, double>& metrics) {
  std::string csv = metrics_header;
  for (const auto& [name, value] : metrics) csv += models::csv_line({name, print_number(value)});
  models::write_output("inspect", path, metrics_kind(), csv);
}

// Rejects unknown extensions, which would silently become a folder's name.
void check_out(const std::string& out) {
  const std::string ending = std::filesystem::path(out).extension().string();
  const bool known = ending.empty() || ending == ".safetensors" || ending == ".csv";
  check_usage(known || folder_exists(out), "inspect: --out=", out, " has the extension ", ending,
              ", which is not supported; give FILE.safetensors, FILE.csv, or a folder for .npy files (a new one "
              "without an extension)");
  if (!is_one_file(out)) return models::check_no_run("inspect", without_last_slashes(out));
  models::check_output("inspect", out, kind_of_file(out));
}

// Metrics are one-element tensors in a safetensors file, and a table in a folder.
void write_numbers(const std::string& out, std::vector<NamedTensor> all, const std::vector<models::View>& views) {
  const std::map<std::string, double> metrics = models::metrics_of(views);
  check(!all.empty() || !metrics.empty(),
        "inspect: these analyses return no values for --out; choose others with --analysis, or values with --hooks");
  if (is_one_file(out)) {
    for (const auto& [name, value] : metrics)
      all.push_back({name, Tensor::from(Shape{1}, std::vector<double>{value}, Dtype::f64)});
    models::check_output("inspect", out, kind_of_file(out));
    write_safetensors(out, all, {{written_by, "orrery inspect"}});
    std::cout << for_terminal(out) << ": " << pluralize(static_cast<int64_t>(all.size()), "tensor") << std::endl;
    return;
  }
  const auto path_of = [&](const NamedTensor& each) {
    std::string file = each.name;
    std::replace(file.begin(), file.end(), '/', '.');
    return out + "/" + file + ".npy";
  };
  for (const NamedTensor& each : all) models::check_output("inspect", path_of(each), models::npy_kind());
  models::check_output("inspect", out + "/metrics.csv", metrics_kind());
  const FolderLock lock(out, {"inspect"});
  for (const NamedTensor& each : all) {
    const std::string dtype = each.tensor.dtype() == Dtype::f64 ? "F64" : "F32";
    models::write_npy(path_of(each), {each.name, dtype, sizes_of(each.tensor.shape()), each.tensor, {}});
  }
  if (!metrics.empty()) write_metrics_csv(out + "/metrics.csv", metrics);
  const size_t files = all.size() + (metrics.empty() ? 0 : 1);
  std::cout << for_terminal(out) << ": " << pluralize(static_cast<int64_t>(files), "file") << std::endl;
}

void write_metrics_file(const std::string& out, const std::vector<models::View>& views) {
  const std::map<std::string, double> metrics = models::metrics_of(views);
  check(!metrics.empty(),
        "inspect: these analyses return no metrics for --out; choose --analysis=heads, logit_lens, neurons, "
        "ablation or normalization_curves");
  write_metrics_csv(out, metrics);
  std::cout << for_terminal(out) << ": " << pluralize(static_cast<int64_t>(metrics.size()), "metric") << std::endl;
}

// Returns the tokens of a text; of documents, at least the first `enough`, each ended as in training.
std::vector<int32_t> corpus_tokens(const std::string& path, const LoadedRun& trained, size_t enough) {
  const auto tokenizer = models::restore_tokenizer(trained.tokenizer);
  models::TextSource source(path);
  const AnySettings& task = trained.settings.task_settings;
  if (find_setting(task.members(), "text_field")) source.field = models::setting_of<std::string>(task, "text_field");
  const bool plain = is_pipe(path) || !(folder_exists(path) || models::has_many_documents(models::TextPath(source)));
  if (plain) return encode_text(*tokenizer, beginning_of_file(path));
  struct Enough {};  // ends the reading, which may be of a data set
  std::vector<int32_t> tokens;
  try {
    models::encode_files(*tokenizer, models::TextFiles(source), [&](std::span<const int32_t> some, const auto&) {
      tokens.insert(tokens.end(), some.begin(), some.end());
      if (tokens.size() >= enough) throw Enough();
    });
  } catch (const Enough&) {
  }
  return tokens;
}

// Splits the text into chunks of the model's context length.
std::vector<std::unique_ptr<models::InspectedExample>> corpus_chunks(const std::string& file, const LoadedRun& trained,
                                                                     const models::InspectedExample& inspected) {
  constexpr size_t max_chunks = 1024;
  const auto* const model = dynamic_cast<const models::LanguageModel*>(trained.model.get());
  check(model && inspected.tokens(),
        "inspect: --corpus requires a language model, and this model is not one; leave it out");
  const std::vector<int32_t> tokens = corpus_tokens(file, trained, max_chunks * static_cast<size_t>(model->context()));
  check(!tokens.empty(), "inspect: --corpus=", file, " has no tokens; give a file with text");
  std::vector<std::unique_ptr<models::InspectedExample>> chunks;
  for (size_t begin = 0; begin < tokens.size() && chunks.size() < max_chunks;) {
    const size_t end = std::min(tokens.size(), begin + static_cast<size_t>(model->context()));
    chunks.push_back(inspected.from_tokens(
        {tokens.begin() + static_cast<std::ptrdiff_t>(begin), tokens.begin() + static_cast<std::ptrdiff_t>(end)},
        false));
    begin = end;
  }
  return chunks;
}

// Rejects options of an analysis that is not requested, which would have no effect.
void check_analyses_use(const InspectSettings& s) {
  std::vector<std::string> analyses = split_list(s.analyses);
  for (std::string& name : analyses) name = models::with_current_metrics(name);
  const auto check_used = [&](const std::string& value, const char* key, const char* analysis) {
    check_usage(
        value.empty() || s.analyses == "all" || std::find(analyses.begin(), analyses.end(), analysis) != analyses.end(),
        "inspect: --", key, " is for the analysis ", analysis, ", which is not requested; add --analysis=", analysis,
        ", or leave --", key, " out");
  };
  check_used(s.patch_from, "patch_from", "ablation"), check_used(s.corpus, "corpus", "neurons");
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

models::ExampleSettings second_example(const InspectSettings& s, const nn::Module& model) {
  models::ExampleSettings patch_from = s.example;
  const bool images = dynamic_cast<const models::ImageModel*>(&model) != nullptr,
             translator = dynamic_cast<const models::TranslationModel*>(&model) != nullptr;
  (images ? patch_from.image : translator ? patch_from.source : patch_from.text) = s.patch_from;
  return patch_from;
}

void print_results(const std::vector<ValueSummary>& captured, const std::vector<models::View>& views) {
  if (!captured.empty()) std::cout << list_of(captured);
  for (const models::View& view : views)
    if (!view.plot_only) std::cout << view_text(view) << "\n";
}

Json json_of(const std::string& run, const std::vector<ValueSummary>& captured,
             const std::vector<models::View>& views) {
  Json all = Json::array();
  for (const models::View& view : views) all.push_back(view_json(view));
  return {{"run", run}, {"values", json_of(captured)}, {"views", all}, {"metrics", json_numbers(metrics_of(views))}};
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
  const bool use_default = s.analyses.empty() && (s.hooks.empty() || !s.html.empty());
  if (use_default) s.analyses = default_analyses;
  check_analyses_use(s);
  if (s.threads > 0) set_thread_count(static_cast<int>(s.threads));
  JsonOutput json(s.json);
  LoadedRun trained = load_run("inspect", words[0]);
  apply_bounds("inspect", s.begin, trained);
  warn_about_version(words[0], trained.version);
  const auto inspected = example_for(trained, s.example, arguments);
  check_input_kind("inspect", trained, s.example);
  std::unique_ptr<models::InspectedExample> patch_from;
  if (!s.patch_from.empty())
    patch_from = make_example("inspect", trained, second_example(s, *trained.model)),
    s.analysis.patch_from = patch_from.get();
  std::vector<std::unique_ptr<models::InspectedExample>> chunks;
  if (!s.corpus.empty()) chunks = corpus_chunks(s.corpus, trained, *inspected);
  for (const auto& chunk : chunks) s.analysis.corpus.push_back(chunk.get());
  std::vector<models::View> views;
  const models::HostMemoryLimit limit;  // an error instead of the system's kill
  {
    Progress progress("analyzing " + words[0]);
    s.analysis.progress = [&](const std::string& done, double fraction) { progress.fraction(done, fraction); };
    views = analyze(*inspected, s.analyses, s.analysis);
    if (views.empty() && use_default) views = analyze(*inspected, "all", s.analysis);
  }
  std::vector<NamedTensor> numbers;
  if (!s.hooks.empty()) numbers = captured(*inspected, s.hooks);
  const std::vector<ValueSummary> captured = summaries_of(numbers);
  if (!json) print_results(captured, views);
  check(!views.empty() || !s.hooks.empty(), "inspect: this model does not support ",
        use_default ? "any analysis" : s.analyses, "; ",
        use_default ? "" : "choose from " + join(models::analyses().names()) + ", or ",
        "list its values with --hooks=*");
  add_numbers(numbers, views);
  if (s.out.ends_with(".csv"))
    write_metrics_file(s.out, views);
  else if (!s.out.empty())
    write_numbers(s.out, std::move(numbers), views);
  if (!s.html.empty()) {
    models::Json sections = models::Json::array();
    add_views(sections, views);
    sections.push_back(command_section("inspect", arguments));
    sections.push_back(environment_section({}));
    write_page(html, "Analysis of " + words[0], std::move(sections));
  }
  if (json) json.print(json_of(words[0], captured, views));
  std::cout << std::flush;
  return 0;
}

}  // namespace orrery::program
