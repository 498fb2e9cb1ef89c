// .dropped files: a sentence and its translation are in turn a line.
#include "engine/types/check.h"
#include "models/data/pair_format.h"

namespace orrery::models {
namespace {

std::vector<TextPair> read_dropped(const PairFiles& files) {
  check_no_columns(files, files.source + " is a .dropped file");
  std::vector<TextPair> pairs;
  bool is_target = false;
  each_line_of_pairs(files.source, [&](std::string_view line) {
    if (is_target)
      pairs.back().second = line;
    else
      pairs.emplace_back(line, "");
    is_target = !is_target;
  });
  check(!is_target, "pairs: the last sentence of ", files.source, " has no translation");
  return pairs;
}

REGISTER_PAIR_FORMAT(dropped_pairs,
                     {.name = "dropped_pairs",
                      .description = ".dropped files of pairs, for a test",
                      .reads = [](const PairFiles& files) { return files.source.ends_with(".dropped"); },
                      .read = read_dropped});

}  // namespace
}  // namespace orrery::models
