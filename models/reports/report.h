// Report: a list of sections of pure data that the page's script draws (examples/orrery/page):
//   {"group": "Curves", "kind": "curves", "title": "gradient norm", "text": "...", "data": {...}}
// Sections of one group share a heading; those with the same "view" are side by side, each of the "run" of this number,
// and have the same scales; `text` is printed next to the plot. Kinds and their data:
//   values    {"items": [{"name", "value", "note"}]}          single values
//   curves    report_curves.h
//   table     {"columns": [{"name", "align": "left" or "right"}], "rows": [[text...]], "marked": [row numbers]}
//                                                         a long one starts with the marked rows
//   text      {"items": [{"name", "text", "wrap": bool, "copy": bool}], "side": bool}
//                                                         long ones in pages; with side, next to each other
//   matrix    {"rows": [labels], "columns": [labels], "values": packed, "signed": bool,
//              "quantity": "weight"}; optional:
//             "axes": [what rows are, what columns are], "low" and "high": ends of the scale,
//             "none": meaning of non-finite values, "slots": number of last columns that are slots,
//             "spans": true with "span": columns before its own that a row attends to, one number or one per row
//   matrices  {"rows", "columns", "signed", "quantity", "down": "layer", "across": "head", "shape": [R, C],
//              "maps": [{"name": "layer 0, head 3", "values": packed, "span"}]}     R C maps, row by row, else as above
//   lens      {"rows", "columns", "targets": [name or ""], "target": "the target", "words": [distinct top predictions],
//              "word": [number of each cell's word], "probability": packed p of the word, "log_probability" and "rank":
//              packed, of the column's target}
//   tokens    {"tokens": [labels], "quantity": "-ln p", "values": packed; none if no token has a value}
//   choices   {"positions": [labels], "words": [distinct names], "word": [numbers of the names, the same count for each
//              position], "probability": packed, "targets": [name or ""], "target_probability": packed,
//              "shown": number of the position that is shown first}
//   image     {"shape": [H, W, C], "base64": a byte per channel, "positions": [labels]; "ROW,COLUMN": a patch}
//   components {"components": [{"path", "kind", "spec", "tensors": ["weight (8, 4)"], "parameters", "heads", "units",
//              "slots": 0 for none, "span": [tokens], "formulas": [numbers]}], a module before those in it,
//              "formulas": [{"family", "name", "formula", "file", "link": "" for none}]}
//   bars      {"quantity", "rows": [{"name", "value", "low", "high", "note"}], "zero": bool}     low and high, or null;
//                                                         with zero its position is marked
//   formula   {"entries": [{"family", "name", "used", "formula", "derivation", "settings", "properties", "source",
//              "file", "link"}]}
// packed: the output of packed_values, row by row.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "models/formats/json.h"
#include "models/reports/reported_run.h"

namespace orrery::models {

Json report_section(const std::string& group, const std::string& kind, const std::string& title,
                    const std::string& text, Json data);

// {"low": -1.5, "high": 2, "count": 64, "gaps": [8, 24], "base64": "..."}: u16 little-endian, 0 for the
// smallest value, 65,534 for the largest, 65,535 for non-finite; error at most (high - low) / 131,068.
// base64 leaves out long runs of non-finite values, such as the keys after a query: gaps has the start and
// length of each.
Json packed_values(std::span<const float> values);

void add_overview(Json& sections, std::span<const ReportedRun> runs);
// Adds all settings. Marks differences from the preset (one run) or between runs (several).
void add_settings(Json& sections, std::span<const ReportedRun> runs);
void add_data(Json& sections, std::span<const ReportedRun> runs);      // training data and checkpoint files
void add_commands(Json& sections, std::span<const ReportedRun> runs);  // to repeat, resume, sample from and evaluate
// Adds notes on unreadable files, other versions, and losses whose meaning differs between runs.
void add_notes(Json& sections, std::span<const ReportedRun> runs);

}  // namespace orrery::models
