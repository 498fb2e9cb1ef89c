// The commands of the program.  Each reads its arguments, does its work, prints it, and returns the exit code.
#pragma once

#include <string>
#include <vector>

namespace orrery::program {

using Arguments = std::vector<std::string>;

struct Command {
  std::string name, summary;
  std::string (*help)();  // what `orrery NAME --help` adds: the arguments, their defaults and meaning
  int (*run)(const Arguments& arguments);
};

std::string train_help();
int train(const Arguments& arguments);
std::string generate_help();
int generate(const Arguments& arguments);
std::string gradcheck_help();
int gradcheck(const Arguments& arguments);
std::string list_help();
int list(const Arguments& arguments);
std::string try_out_help();
int try_out(const Arguments& arguments);
// Checks one name as gradcheck does and prints its tables.
bool passes_gradcheck(const std::string& family, const std::string& name);
std::string bench_help();
int bench(const Arguments& arguments);

}  // namespace orrery::program
