// The commands of the program. Each parses its arguments, works, prints, and returns the exit code.
#pragma once

#include <string>
#include <vector>

namespace orrery::program {

using Arguments = std::vector<std::string>;

constexpr int worse_than_guessing = 3;  // exit code of a training that ends worse than a uniform guess

struct Command {
  std::string name, arguments, summary;  // arguments: printed after the name in `Usage:`
  // Text of `orrery NAME --help`: arguments, defaults and meaning, which `given` may change.
  std::string (*help)(const Arguments& given);
  int (*run)(const Arguments& arguments);
  // End of out-of-memory errors (engine/system/machine_memory.h); null: the library's default.
  const char* way_out_of_memory = nullptr;
};

std::string train_help(const Arguments& given);
int train(const Arguments& arguments);
std::string sweep_help(const Arguments& given);
int sweep(const Arguments& arguments);
std::string study_help(const Arguments& given);
int study(const Arguments& arguments);
std::string runs_help(const Arguments& given);
int runs(const Arguments& arguments);
std::string compare_help(const Arguments& given);
int compare(const Arguments& arguments);
std::string metrics_help(const Arguments& given);
int metrics(const Arguments& arguments);
std::string verify_resume_help(const Arguments& given);
int verify_resume(const Arguments& arguments);
std::string replay_help(const Arguments& given);
int replay(const Arguments& arguments);
std::string report_help(const Arguments& given);
int report(const Arguments& arguments);
std::string inspect_help(const Arguments& given);
int inspect(const Arguments& arguments);
std::string prepare_help(const Arguments& given);
int prepare(const Arguments& arguments);
std::string evaluate_help(const Arguments& given);
int evaluate(const Arguments& arguments);
std::string generate_help(const Arguments& given);
int generate(const Arguments& arguments);
std::string translate_help(const Arguments& given);
int translate(const Arguments& arguments);
std::string import_help(const Arguments& given);
int import_weights(const Arguments& arguments);
std::string export_help(const Arguments& given);
int export_weights(const Arguments& arguments);
std::string show_help(const Arguments& given);
int show(const Arguments& arguments);
std::string classify_help(const Arguments& given);
int classify(const Arguments& arguments);
std::string gradcheck_help(const Arguments& given);
int gradcheck(const Arguments& arguments);
std::string list_help(const Arguments& given);
int list(const Arguments& arguments);
std::string try_out_help(const Arguments& given);
int try_out(const Arguments& arguments);
// Prints gradcheck's tables for one name; true without output if its family has no derivatives.
bool passes_gradcheck(const std::string& family, const std::string& name);
std::string bench_help(const Arguments& given);
int bench(const Arguments& arguments);

}  // namespace orrery::program
