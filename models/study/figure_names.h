// What runs have noted, by name: which figures there are, and which of them are asked for.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/study/run_log.h"

namespace orrery::models {

std::vector<std::string> figure_names(const RunLog& log);  // of all rows, each once, block2 before block10

// Those of `names` that fit one of `patterns`, a list with commas in which * stands for any characters, ? for one and
// [ab] for a choice; an empty list asks for all.  Errors begin with `command`; a pattern that fits nothing is one:
//   metrics: no figure fits 'los'; did you mean 'loss'?
std::vector<std::string> fitting_figures(const std::string& command, const std::vector<std::string>& names,
                                         const std::string& patterns);

// Whether a figure says how long something took, which is another time in each run: milliseconds, tokens_per_second,
// mfu.
bool tells_time(const std::string& figure);

}  // namespace orrery::models
