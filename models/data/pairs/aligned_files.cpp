// Two files: each line of one is the translation of the same line of the other.
#include <string_view>

#include "engine/types/check.h"
#include "models/data/lines.h"
#include "models/data/pair_format.h"

namespace orrery::models {
namespace {

// Reads two files, line by line.
std::vector<TextPair> read_aligned(const PairFiles& files) {
  check_no_columns(files, files.source + " and " + files.target + " are files of lines");
  std::vector<TextPair> pairs;
  const std::string what = "pairs: " + files.source;
  each_line_of_pairs(files.source, [&](std::string_view line) {
    add_checked(pairs, {std::string(line), {}}, what, fewer_pairs);
  });
  size_t targets = 0;
  each_line_of_pairs(files.target, [&](std::string_view line) {
    if (targets++ < pairs.size()) pairs[targets - 1].second = line;
  });
  check(pairs.size() == targets, "pairs: number of lines in ", files.source, " is ", pairs.size(), ", but in ",
        files.target, " it is ", targets, "; each line of one must be the translation of the same line of the other");
  return pairs;
}

REGISTER_PAIR_FORMAT(aligned_files,
                     {.name = "aligned_files",
                      .description = "sentences, one per line, and a file with the translation of each "
                                     "line: --data=FILE --translations=FILE",
                      .reads = [](const PairFiles& files) { return !files.target.empty(); },
                      .read = read_aligned});

}  // namespace
}  // namespace orrery::models
