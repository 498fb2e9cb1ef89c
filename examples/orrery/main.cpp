// The program orrery: its table of commands.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "engine/settings/registry.h"
#include "engine/system/machine_memory.h"
#include "engine/types/check.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/help.h"
#include "examples/orrery/commands/train_ranks.h"
#include "examples/orrery/terminal/process_io.h"
#include "examples/orrery/terminal/threads.h"
#include "examples/orrery/terminal/version_text.h"
#include "models/catalogue/plugins.h"

namespace orrery::program {
namespace {

constexpr const char *fewer_runs = "use fewer or shorter runs, or end other programs",
                     *smaller_model = "use a smaller model, or end other programs";

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      {"train", "--data=PATH [--key=value ...]", "train a model on text, sentence pairs, images or generated tasks",
       train_help, train},
      {"sweep", "[CONFIG.toml] --key=VALUES ...", "train every combination of settings and compare them seed by seed",
       sweep_help, sweep},
      {"study", "CLAIM.toml [--key=value ...] | --all=FOLDER [--key=value ...]",
       "test the claim in a TOML file by training its runs", study_help, study},
      {"runs", "[FOLDER] | --runs=POOL [RUN ...] [--key=value ...]",
       "list the runs below a folder, or in a pool that sweeps and studies share, and remove unused ones", runs_help,
       runs, fewer_runs},
      {"compare", "RUN RUN ... [--key=value ...]", "compare two or more runs: settings, metrics and parameters",
       compare_help, compare, fewer_runs},
      {"metrics", "RUN [--key=value ...]", "write the metrics of a run as CSV or for TensorBoard", metrics_help,
       metrics, fewer_runs},
      {"verify_resume", "RUN [--key=value ...]", "check that a run resumes bit for bit after an interruption",
       verify_resume_help, verify_resume},
      {"replay", "RUN [--key=value ...]", "repeat the step in which a run found a non-finite value, with details",
       replay_help, replay},
      {"report", "RUN ... [--key=value ...]",
       "write an HTML page about runs, a sweep or a study: curves, samples, settings, formulas", report_help, report,
       fewer_runs},
      {"inspect", "RUN [--key=value ...]",
       "analyze a trained model on one example: attention, heads, neurons, logit lens", inspect_help, inspect,
       "inspect a shorter text or a smaller model"},
      {"prepare", "--input=PATH --out=FOLDER [--key=value ...]", "tokenize a text once, for many runs", prepare_help,
       prepare, "use a shorter text or a smaller tokenizer, or end other programs"},
      {"evaluate", "RUN [--key=value ...]", "evaluate a trained model on held-out data", evaluate_help, evaluate,
       smaller_model},
      {"generate", "RUN [--key=value ...]", "generate text with a trained model", generate_help, generate,
       "give a shorter prompt, or use a smaller model"},
      {"translate", "RUN --input=FILE [--key=value ...]", "translate sentences with a trained model", translate_help,
       translate, "translate fewer or shorter sentences, or use a smaller --batch_size or --beam"},
      {"import", "PATH --out=RUN [--key=value ...]", "import another program's weights as a run", import_help,
       import_weights, smaller_model},
      {"export", "RUN --out=FOLDER [--key=value ...]", "export a run's weights for another program", export_help,
       export_weights, smaller_model},
      {"show", "PATH [--key=value ...]", "list the tensors of a file or of a run, or write one as a NumPy array",
       show_help, show, "use a smaller file, or end other programs"},
      {"classify", "RUN IMAGE|FOLDER ... [--key=value ...]", "classify images with a trained model", classify_help,
       classify, "give fewer or smaller images, or use a smaller model"},
      {"gradcheck", "NAME ... | --all [--key=value ...]",
       "compare hand-written derivatives with references and finite differences", gradcheck_help, gradcheck},
      {"list", "[FAMILY|NAME ...] [--key=value ...]",
       "print the catalogue: every registered name with its formula and source", list_help, list},
      {"try", "FILE.cpp [--key=value ...]",
       "compile one formula file, check it, plot it, and train small models with it", try_out_help, try_out},
      {"bench", "GROUP ... [--key=value ...]", "time operations and training, to compare them with PyTorch", bench_help,
       bench},
      {"completion", "bash|zsh|fish|man", "print a completion script for a shell, or a man page", completion_help,
       completion},
  };
  return all;
}

namespace {

// Removes --plugin=FILE.so and --plugin FILE.so before any `--` and loads each plug-in.
std::vector<std::string> without_plugins(int argc, char** argv) {
  std::vector<std::string> rest;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], key = "--plugin";
    if (word == "--") {
      rest.insert(rest.end(), argv + i, argv + argc);
      break;
    }
    if (word == key) {
      check_usage(i + 1 < argc, "--plugin needs a file, as in --plugin=runs/plugins/my_activation.so");
      models::load_plugin_once(argv[++i]);
    } else if (word.starts_with(key + "=")) {
      models::load_plugin_once(word.substr(key.size() + 1));
    } else {
      rest.push_back(word);
    }
  }
  return rest;
}

// Throws unless the first argument is a command, help, --help or --version.
void check_first(const std::vector<std::string>& words) {
  if (words.empty() || find_command(words[0]) || words[0] == "-h" || words[0] == "--help" || words[0] == "--version")
    return;
  const auto command = std::find_if(words.begin(), words.end(), [](const auto& word) { return find_command(word); });
  check_usage(command == words.end(), "'", join(std::vector<std::string>(words.begin(), command), " "),
              "' is given before the command ", command == words.end() ? "" : *command,
              "; the command must come first");
  const std::string meant = nearest(words[0], command_names());
  fail_usage("unknown command '", words[0], "'; ", meant.empty() ? "" : "did you mean '" + meant + "'? ",
             "available: ", join(command_names()));
}

// Turns --help=all before any `--` into --help; returns whether there was one.
bool take_help_of_all(std::vector<std::string>& words) {
  const auto end = std::find(words.begin(), words.end(), "--");
  const bool all = std::find(words.begin(), end, "--help=all") != end;
  std::replace(words.begin(), end, std::string("--help=all"), std::string("--help"));
  return all;
}

// Returns CLI11's order, without arguments that it misreads: those after `--`, and -hat.cpp as -h.
std::vector<std::string> reversed(const std::vector<std::string>& words) {
  std::vector<std::string> all(words.begin(), std::find(words.begin(), words.end(), "--"));
  std::erase_if(
      all, [](const std::string& word) { return word.starts_with("-") && !word.starts_with("--") && word != "-h"; });
  std::reverse(all.begin(), all.end());
  return all;
}

int run(int argc, char** argv) {
  std::vector<std::string> given = without_plugins(argc, argv);
  if (!given.empty() && given[0] == "help") return print_help(Arguments(given.begin() + 1, given.end()));
  const bool all = take_help_of_all(given);
  check_first(given);
  CLI::App app("", "orrery");
  app.formatter_fn([](const CLI::App*, std::string, CLI::AppFormatMode) { return general_help(); });
  app.set_version_flag("--version", version_text);
  app.require_subcommand(0, 1);
  app.allow_extras();
  for (const Command& command : commands()) {
    CLI::App* const sub = app.add_subcommand(command.name);
    sub->allow_extras();
    sub->formatter_fn([&command, sub, all](const CLI::App*, std::string, CLI::AppFormatMode) {
      return help_of(command, sub->remaining(), all);
    });
  }
  try {
    app.parse(reversed(given));
  } catch (const CLI::Success& requested) {  // --help, --version
    return app.exit(requested);
  } catch (const CLI::ParseError& error) {
    fail_usage(error.what());
  }
  for (const Command& command : commands())
    if (const CLI::App* const sub = app.get_subcommand(command.name); sub->parsed()) {
      if (command.name != std::string("train")) check_one_process(command.name);
      apply_omp_num_threads();
      if (command.out_of_memory_advice) set_out_of_memory_advice(command.out_of_memory_advice);
      return command.run(Arguments(given.begin() + 1, given.end()));
    }
  std::cout << app.help();
  return 0;
}

}  // namespace
}  // namespace orrery::program

int main(int argc, char** argv) {
  using namespace orrery::program;
  try {
    CheckedOutput output;
    try {
      const int code = run(argc, argv);
      output.finish();
      end_program(code);
    } catch (...) {
      output.finish_after_error();
      end_other_ranks();
      throw;
    }
  } catch (...) {
    end_program(exit_code_of_current_exception());
  }
}
