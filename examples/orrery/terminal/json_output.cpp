#include "examples/orrery/terminal/json_output.h"

#include <cmath>
#include <iostream>
#include <utility>

namespace orrery::program {

Json json_number(double x) {
  if (std::isfinite(x)) return x;
  return std::isnan(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity";
}

// A closed standard error must not end a command, so its failures raise no exception here.
JsonOutput::JsonOutput(bool wanted) : wanted_(wanted), exceptions_(std::cout.exceptions()) {
  if (!wanted) return;
  std::cout.exceptions(std::ios::goodbit);
  output_ = std::cout.rdbuf(std::cerr.rdbuf());
}

JsonOutput::~JsonOutput() {
  try {
    restore();
  } catch (const std::exception&) {  // a destructor must not throw; the next print throws this error again
  }
}

void JsonOutput::restore() {
  if (!output_) return;
  std::cout.rdbuf(std::exchange(output_, nullptr));  // clears the state, too
  std::cout.exceptions(exceptions_);
}

// Replaces bytes that are not UTF-8, as in names of files, because JSON cannot hold them.
void JsonOutput::print(const Json& value) {
  const std::string all = models::shown_json(value);
  restore();
  std::cout << all << std::endl;
}

}  // namespace orrery::program
