// A report is a list of sections, pure data, which the page's script draws (examples/orrery/page).  A section is
//   {"group": "Curves", "kind": "curves", "title": "gradient norm", "text": "...", "data": {...}}
// Sections of one group stand under one heading; `text` is what is said beside the picture.  Kinds and their data:
//   figures   {"items": [{"name", "value", "note"}]}          numbers that stand alone
//   curves    report_curves.h
//   table     {"columns": [{"name", "align": "left" or "right"}], "rows": [[text...]], "marked": [row numbers]}
//                                                         a long one begins with those that are marked
//   text      {"items": [{"name", "text", "wrap": bool, "copy": bool}], "side": bool}
//                                                         long ones page by page; with side beside one another
//   matrix    {"rows": [labels], "columns": [labels], "values": packed, "signed": bool, "figure": "weight"}, and where
//             there is such a thing "axes": [what rows are, what columns are], "low" and "high": ends of the scale,
//             "none": what is not finite, "slots": so many last columns are slots, "spans": true with "span": how many
//             columns before its own a row reads, a number or one for each row
//   matrices  {"rows", "columns", "signed", "figure", "down": "layer", "across": "head", "shape": [R, C],
//              "maps": [{"name": "layer 0, head 3", "values": packed, "span"}]}     R C maps, row by row, else as above
//   bars      {"figure", "rows": [{"name", "value", "low", "high", "note"}], "zero": bool}     low and high, or null;
//                                                         with zero its place is shown
//   formula   {"entries": [{"family", "name", "used", "formula", "derivation", "settings", "facts", "source"}]}
// packed: what packed_values makes of numbers, rows after one another.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "models/formats/json.h"
#include "models/reports/reported_run.h"

namespace orrery::models {

Json report_section(const std::string& group, const std::string& kind, const std::string& title,
                    const std::string& text, Json data);

// {"low": -1.5, "high": 2, "count": 64, "base64": "..."}: each number as 16 bits between the least (0) and the largest
// one (65,534), little end first; 65,535 is one that is not finite.  It differs by at most (high - low) / 131,068.
Json packed_values(std::span<const float> values);

void add_overview(Json& sections, std::span<const ReportedRun> runs);
// All of them; marked are those of one run that its preset has otherwise, and those in which several runs differ.
void add_settings(Json& sections, std::span<const ReportedRun> runs);
void add_data(Json& sections, std::span<const ReportedRun> runs);      // what was learned, and the checkpoints' files
void add_commands(Json& sections, std::span<const ReportedRun> runs);  // that repeat the runs, go on, write and judge
void add_notes(Json& sections, std::span<const ReportedRun> runs);     // what cannot be read, and other versions

}  // namespace orrery::models
