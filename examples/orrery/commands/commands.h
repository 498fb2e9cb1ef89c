// The commands of the program. Each parses its arguments, works, prints, and returns the exit code.
#pragma once

#include <string>
#include <vector>

#include "examples/orrery/terminal/arguments.h"

namespace orrery::program {

using Arguments = std::vector<std::string>;

constexpr int worse_than_uniform = 3;  // exit code of a training that ends worse than a uniform guess

// Content of `orrery NAME --help`; about and notes are paragraphs before and after the settings.
struct CommandHelp {
  std::string about = {};
  std::vector<SettingHelp> settings = {};
  std::string notes = {}, example = {};
  std::vector<std::string> positional_values = {};  // values of arguments without a key; empty: paths
};

struct Command {
  std::string name, arguments, summary;  // arguments: printed after the name in `Usage:`
  CommandHelp (*help)(const Arguments& given);  // `given` may change the defaults
  int (*run)(const Arguments& arguments);
  // End of out-of-memory errors (engine/system/machine_memory.h); null: the library's default.
  const char* out_of_memory_advice = nullptr;
};

const std::vector<Command>& commands();  // the table of main.cpp

// NAME_help returns the command's help; NAME runs it and returns the exit code, or throws an Error.
CommandHelp train_help(const Arguments& given);
int train(const Arguments& arguments);
CommandHelp sweep_help(const Arguments& given);
int sweep(const Arguments& arguments);
CommandHelp study_help(const Arguments& given);
int study(const Arguments& arguments);
CommandHelp runs_help(const Arguments& given);
int runs(const Arguments& arguments);
CommandHelp compare_help(const Arguments& given);
int compare(const Arguments& arguments);
CommandHelp metrics_help(const Arguments& given);
int metrics(const Arguments& arguments);
CommandHelp verify_resume_help(const Arguments& given);
int verify_resume(const Arguments& arguments);
CommandHelp replay_help(const Arguments& given);
int replay(const Arguments& arguments);
CommandHelp report_help(const Arguments& given);
int report(const Arguments& arguments);
CommandHelp inspect_help(const Arguments& given);
int inspect(const Arguments& arguments);
CommandHelp prepare_help(const Arguments& given);
int prepare(const Arguments& arguments);
CommandHelp evaluate_help(const Arguments& given);
int evaluate(const Arguments& arguments);
CommandHelp generate_help(const Arguments& given);
int generate(const Arguments& arguments);
CommandHelp translate_help(const Arguments& given);
int translate(const Arguments& arguments);
CommandHelp import_help(const Arguments& given);
int import_weights(const Arguments& arguments);
CommandHelp export_help(const Arguments& given);
int export_weights(const Arguments& arguments);
CommandHelp show_help(const Arguments& given);
int show(const Arguments& arguments);
CommandHelp classify_help(const Arguments& given);
int classify(const Arguments& arguments);
CommandHelp gradcheck_help(const Arguments& given);
int gradcheck(const Arguments& arguments);
CommandHelp list_help(const Arguments& given);
int list(const Arguments& arguments);
CommandHelp try_out_help(const Arguments& given);
int try_out(const Arguments& arguments);
// Prints gradcheck's tables for one name; true without output if its family has no derivatives.
bool passes_gradcheck(const std::string& family, const std::string& name);
// Returns what `orrery list NAME` prints, with a line per setting, or only the entry of one family;
// empty if there is none. `spec`: a name, or one with items, whose values replace the defaults.
std::string catalogue_of(const std::string& spec, const std::string& only_family = {});
std::vector<std::string> catalogue_names();  // families and their members
CommandHelp bench_help(const Arguments& given);
int bench(const Arguments& arguments);
CommandHelp completion_help(const Arguments& given);
int completion(const Arguments& arguments);

}  // namespace orrery::program
