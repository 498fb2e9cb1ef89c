// The source of a formula file. `orrery try` searches it for calls that a GPU cannot make.
#include "examples/orrery/commands/formula_source.h"

#include <string>

#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;

void read(const std::string&, std::string_view bytes) {
  for (const std::string& sentence : orrery::program::std_calls(std::string(bytes)))
    promise(sentence.starts_with("line ") && sentence.find(": std::") != std::string::npos,
            "a finding without a location");
}

REGISTER_FORMAT(formula,
                {.name = "formula",
                 .readers = {"examples/orrery/commands/formula_source.cpp"},
                 .read = read,
                 .memory_multiple = 4096,
                 .memory_base = 1 << 16,
                 .words = {"HOST_DEVICE", "std::", "exp(", "{", "}", "//", "/*", "*/", "\"", "'", "R\"(", "\n", ";"}});

}  // namespace
