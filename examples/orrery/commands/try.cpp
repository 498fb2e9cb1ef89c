// orrery try: compiles a formula file to a plug-in, then checks, plots and trains with it.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <optional>

#include "engine/settings/plugin.h"
#include "engine/settings/registry.h"
#include "engine/system/compiler.h"
#include "engine/system/files.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/formula_source.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/plot.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/table.h"
#include "models/architectures/gpt.h"
#include "models/architectures/masks.h"
#include "models/catalogue/catalogue.h"
#include "models/catalogue/plugins.h"
#include "models/formats/output_file.h"
#include "models/formats/shell_words.h"
#include "models/training/short_run.h"
#include "nn/base/gradient_case.h"
#include "nn/formulas/activation.h"
#include "nn/losses/base/loss.h"

namespace orrery::program {
namespace {

namespace fs = std::filesystem;

struct TrySettings {
  std::string out = "runs/plugins", data, headers;
  int64_t steps = 200, compile_limit = 600;
  double range = 4;
  template <class V>
  void visit(V& v) {
    v("out", out, "folder for the plug-in");
    v("headers", headers, "folder with engine/ and nn/; if not given, that of the sources, else of the installation");
    v("data", data, "text to train with; if not given, Tiny Shakespeare, which is part of orrery");
    v("steps", steps, "training steps of each small model; 0: no training", between(0, 1e6));
    v("compile_limit", compile_limit, "time limit of the compiler in seconds", between(1, 1e6));
    v("range", range, "range of the plot, from -range to range", above(0, 1e6));
  }
};

constexpr uint64_t max_source_bytes = uint64_t{1} << 20;  // bytes

// Returns the first line with an error, else the first line.
std::string first_error(const std::string& output) {
  std::string first;
  for (size_t at = 0; at < output.size();) {
    const size_t end = std::min(output.find('\n', at), output.size());
    const std::string line = output.substr(at, end - at);
    if (first.empty()) first = line;
    if (line.find(": error") != std::string::npos || line.find(": fatal error") != std::string::npos) return line;
    at = end + 1;
  }
  return first.empty() ? "the compiler printed no message" : first;
}

std::string compile(const std::string& file, const TrySettings& settings) {
  const std::string& folder = settings.out;
  check(file_exists(file), "try: there is no file '", file,
        "'; give a file that registers a component, as in orrery try "
        "examples/03_new_activation.cpp");
  read_file(file, max_source_bytes);  // limits the size and rejects pipes, at which a compiler would wait
  make_folders(folder);
  const std::string plugin = (fs::path(folder) / fs::path(file).stem()).string() + ".so";
  models::check_output("try", plugin, {"a plug-in of orrery", is_plugin});
  const models::OutputKind checksum = models::marked_kind("the checksum file of a plug-in", "# ", " bytes\n");
  models::check_output("try", checksum_path(plugin), checksum);
  const std::string temporary = text(plugin, ".", ::getpid(), ".partial");
  const CompilerResult compiled =
      run_compiler(plugin_compiler(plugin_include_folder(settings.headers), file, temporary), settings.compile_limit);
  if (!compiled.succeeded) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    check(compiled.in_time, "try: '", file, "' does not compile within ", settings.compile_limit,
          " s; allow more with --compile_limit=", 2 * settings.compile_limit);
    fail("try: '", file, "' does not compile: ", first_error(compiled.output));
  }
  rename_file(temporary, plugin);
  write_checksum(plugin);
  return plugin;
}

using Name = std::pair<std::string, std::string>;  // family and name

void print_row(const Name& name) {
  for (const models::CatalogueFamily& family : models::catalogue())
    for (const models::CatalogueEntry& entry : family.entries)
      if (family.name == name.first && entry.name == name.second)
        std::cout << family.name << ":\n" << models::catalogue_text(entry);
}

void print_plot(const Name& name, double range) {
  if (name.first != "activation") return;
  const nn::Activation f(name.second);
  const std::vector<double> p = f.initial_parameters();
  std::cout << plot(
      {{name.second + (p.empty() ? "(x)" : "(x), initial parameters"), [&](double x) { return f.value(x, p); }},
       {"derivative", [&](double x) { return f.derivative(x, p); }}},
      -range, range);
}

// Checks a mask's coverage, and prints its first pairs.
bool passes_coverage(const std::string& name) {
  constexpr int64_t shown = 32;
  const nn::NamedMask mask(name);
  std::cout << "the first " << shown << " queries, from top to bottom, and keys of " << name << " (#: visible)\n";
  for (int64_t i = 0; i < shown; ++i, std::cout << "\n")
    for (int64_t j = 0; j < shown; ++j) std::cout << (mask.visible(i, j) ? " #" : " .");
  const models::MaskCheck found = models::check_mask(name);
  const std::string& wrong = found.contradiction;
  std::cout << "mask " << name << ", coverage() and visible() agree: "
            << (wrong.empty() ? "passed" : "FAILED, " + wrong) << "\n";
  if (wrong.empty())
    std::cout << "  with " << join(found.specs) << "\n  at queries and keys: " << found.positions << "\n";
  return wrong.empty();
}

struct Role {
  std::string key, spec;  // key: a setting of the model, the model, the optimizer or the schedule
};
// Returns the settings by which small models use a component; none: they cannot.
std::vector<Role> roles_of(const Name& name) {
  if (name.first == "activation") {
    return {{"feed_forward", "dense(" + name.second + ")"},
            {"attention", "pointwise(" + name.second + ")"},
            {"normalization", "dynamic(" + name.second + ")"}};
  }
  if (name.first == "mask") return {{"mask", "causal and " + name.second}};
  if (name.first == "model_preset") return {{"model", name.second}};
  for (const char* key : {"attention", "feed_forward", "normalization", "position", "optimizer", "schedule", "model"})
    if (name.first == key) return {{key, name.second}};
  return {};
}

// Returns the arguments of the command that uses a component without a role; none: no setting selects it.
std::vector<std::string> command_with(const Name& name) {
  const auto& [family, member] = name;
  if (family == "analysis") return {"inspect", "RUN", "--analysis=" + member};
  if (family == "data") return {"train", "--data=FILE"};
  if (family == "problem") return {"train", "--task=algorithmic", "--problem=" + member};
  if (family == "metric") return {"train", "--data=FILE", "--metrics=" + member};
  if (family == "loss" && !nn::losses().at(member).weight_of.empty())
    return {"train", "--data=FILE", "--losses." + member + "=1"};
  for (const char* key : {"task", "tokenizer"})
    if (family == key) return {"train", "--data=FILE", text("--", key, "=", member)};
  return {};
}

void print_unused(const Name& name) {
  if (!roles_of(name).empty()) return;
  const std::vector<std::string> command = command_with(name);
  std::cout << "small models do not use " << name.first << " " << name.second
            << (command.empty()         ? "; call it in the code of a model, a component or a task"
                : name.first == "loss" ? "; with a model that computes it, this command does: "
                                       : "; this command does: ")
            << (command.empty() ? "" : models::command_line(models::with_plugins(command))) << "\n";
}

std::vector<std::string> check_source(const std::string& file) {
  std::vector<std::string> failed;
  for (const std::string& violation : std_calls(read_file(file, max_source_bytes))) {
    std::cout << for_terminal(file) << ", " << violation << "\n";
    failed.push_back("standard functions in " + file);
  }
  failed.erase(std::unique(failed.begin(), failed.end()), failed.end());
  return failed;
}

// Reports gradient cases of names that are not registered: no model contains what they check.
std::vector<std::string> unregistered_cases() {
  std::vector<std::string> failed;
  for (const nn::Family& family : nn::families())
    for (const nn::RegisteredCase& one : nn::gradient_cases())
      if (one.family == family.name &&
          std::find(family.members.begin(), family.members.end(), one.name) == family.members.end()) {
        std::cout << one.family << " " << one.name << ": FAILED, a gradient case without a registered name\n";
        failed.push_back("registration of " + one.name);
      }
  return failed;
}

std::string data_file(const TrySettings& settings) {
  if (!settings.data.empty()) return settings.data;
  const fs::path include = plugin_include_folder(settings.headers), text = "tinyshakespeare.txt";
  for (const fs::path& candidate :
       {include / "examples" / "data" / text, include.parent_path().parent_path() / "share" / "orrery" / text})
    if (file_exists(candidate.string())) return candidate.string();
  fail("try: tinyshakespeare.txt is missing in orrery's sources and installation; give a text with --data=FILE");
}

models::NamedModel small_model() {
  models::GptSettings s;
  s.layers = 2, s.heads = 4, s.width = 64, s.context = 64;
  s.feed_forward = parse_spec("dense(gelu)"), s.attention = parse_spec("softmax"),
  s.normalization = parse_spec("layer");
  return {models::model_classes().at(models::Gpt::info.name), AnySettings(s), models::Gpt::info.name};
}

// Trains models with and without the new names, if any has a role. Returns failures: loss not finite
// or not lower.
std::vector<std::string> train(const std::vector<Name>& names, const TrySettings& settings) {
  std::vector<Role> roles;
  for (const Name& name : names)
    for (Role& role : roles_of(name)) roles.push_back(std::move(role));
  if (roles.empty()) return {};
  const std::string data = data_file(settings);
  Table table({"model (2 layers, width 64)", "first loss", "last loss", "time (s)"}, "lrrr");
  std::vector<std::string> failed;
  std::optional<Progress> progress(std::in_place, "training small models");
  const auto add = [&](const std::string& title, const models::NamedModel& model,
                       const models::ShortRunOptions& options) {
    const models::ShortRun run = models::short_run(model, data, settings.steps, options);
    const bool succeeded = std::isfinite(run.last_loss) && run.last_loss < run.first_loss;
    if (!succeeded) failed.push_back("training with " + title);
    table.add({title + (succeeded ? "" : "  FAILED"), fixed(run.first_loss, 4), fixed(run.last_loss, 4),
               fixed(run.seconds, 1)});
  };
  add("gelu, softmax, layer, adamw, constant", small_model(), {});
  for (const auto& [key, spec] : roles) {
    const models::NamedModel model = key == "model" ? models::named_model(spec) : small_model();
    models::ShortRunOptions options;
    if (key == "optimizer")
      options.optimizer = parse_spec(spec);
    else if (key == "schedule")
      options.schedule = parse_spec(spec);
    else if (key != "model")
      set_setting(model.settings.members(), "try", key, spec);
    add(key + " = " + spec, model, options);
  }
  progress.reset();
  std::cout << "training, " << settings.steps << " steps of 4 x 64 characters, mean of the last 20 losses:\n"
            << table.print();
  return failed;
}

}  // namespace

CommandHelp try_out_help(const Arguments&) {
  TrySettings settings;
  return {
      "Compiles one file (an activation, attention, normalization, model, ...) to a plug-in, shows its catalogue "
      "row, its gradient check and a plot, and trains small models with it and, for comparison, one with gelu, "
      "softmax, layer, adamw and a constant learning rate.  For a component that small models do not use, such as a "
      "task, it prints the command that does.  The exit code is 1 if a check fails.\n"
      "--plugin=FILE.so loads the plug-in in every other command, if its size and SHA-256 are those in "
      "FILE.so.sha256.  A plug-in is code and runs with your rights.  The same file in nn/activations/ (or its "
      "family's folder) is part of the library without a change.",
      describe(settings_of(settings)), "", "orrery try examples/03_new_activation.cpp"};
}

int try_out(const Arguments& arguments) {
  TrySettings settings;
  const std::vector<std::string> words = read_arguments("try", arguments, settings_of(settings));
  check_usage(words.size() == 1, "try: ", words.size(),
              " files are given; give one, as in orrery try examples/03_new_activation.cpp");
  const auto start = std::chrono::steady_clock::now();
  std::optional<Progress> progress(std::in_place, "compiling " + words[0]);
  const std::string plugin = compile(words[0], settings);
  progress.reset();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::cout << "compiled in " << fixed(took.count(), 1) << " s: " << for_terminal(plugin) << "\n";

  const std::vector<Name> names = models::load_plugin_once(plugin).names;
  check(!names.empty(), "try: '", words[0],
        "' registers nothing; add a line such as REGISTER_ACTIVATION(Type), REGISTER_ROW_RULE(Type, reference), "
        "REGISTER_ATTENTION, REGISTER_MASK, REGISTER_NORMALIZATION, REGISTER_LOSS or REGISTER_MODEL");

  std::vector<std::string> failed = check_source(words[0]), refused;
  for (std::string& one : unregistered_cases()) failed.push_back(std::move(one));
  for (const Name& name : names) {
    print_row(name);
    if (!passes_gradcheck(name.first, name.second)) failed.push_back("gradcheck of " + name.second);
    print_plot(name, settings.range);
    if (name.first == "mask" && !passes_coverage(name.second)) refused.push_back("coverage of " + name.second);
  }
  if (!refused.empty()) {
    std::cout << "FAILED: " << join(refused) << "; a model would compute with one of the two" << std::endl;
    return 1;
  }
  if (settings.steps > 0)
    for (std::string& one : train(names, settings)) failed.push_back(std::move(one));
  for (const Name& name : names) print_unused(name);
  std::cout << "use it with " << models::shell_quoted("--plugin=" + plugin) << "\n";
  if (!failed.empty()) std::cout << "FAILED: " << join(failed) << std::endl;
  return failed.empty() ? 0 : 1;
}

}  // namespace orrery::program
