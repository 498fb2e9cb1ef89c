// Output files at the user's paths (--out, --html). An existing file is replaced only if this
// program wrote it as an output of the same kind. Files of runs, other kinds and programs stay.
//
// A kind is recognized by the beginning of its files:
//   page (report, inspect)                 the meta element "generator" of examples/orrery/page/page.html
//   samples.svg (study)                    the attributes of its svg element
//   *.csv (metrics, inspect, sweep, study) the header line; of metrics also rows that its run logged, if the columns
//                                          differ
//   *.npy (show, inspect)                  two spaces before the header's closing brace (models/interop/npy.h)
//   *.safetensors (inspect, evaluate)      its metadata, {"written_by": "orrery inspect"} or "orrery evaluate"
//   events of TensorBoard (metrics)        the first record, whose time is 0
//   verdict.json, sweep.json, README.md    the first member, the heading
//   settings.toml, metrics.jsonl, signal_propagation.json (train)  the first line, the first row, all of it
// prepare, export and verify_resume never replace files. No file, not even a new one, is written
// into a checkpoint, because a folder with files other than a checkpoint's is never removed.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "engine/system/files.h"

namespace orrery::models {

struct OutputKind {
  std::string name;                                      // as in an error, "a page that orrery wrote"
  std::function<bool(const std::string& path)> is_ours;  // for a regular file
};
// Returns a kind whose files have `first` at byte `at` and `later` after it.
OutputKind marked_kind(std::string name, std::string first, std::string later = "", size_t at = 0);

// The file that marks a checkpoint, and the beginning of "format" in the checkpoints of orrery.
inline constexpr const char *state_name = "state.json", *checkpoint_formats = "orrery checkpoint ";
// Throws Error if `path` is in a checkpoint, or is its folder:
//   inspect: --out=runs/a/step_000050/x.npy is in the checkpoint runs/a/step_000050, where no other files may be
//   written; choose another --out
void check_outside_checkpoints(std::string_view command, const std::string& path, std::string_view setting = "--out");

// Call it before the work that makes the file. Throws Error; `setting` names the path:
//   report: a.txt exists and is not a page that orrery wrote, so it is not replaced; choose another --out, or remove it
void check_output(std::string_view command, const std::string& path, const OutputKind& kind,
                  std::string_view setting = "--out");

// Throws UsageError if the path has an extension, but none of these. Call it after check_output:
//   inspect: --html=x.png has the extension .png, which is not supported; give FILE.html
void check_extension(std::string_view command, const std::string& path,
                     std::initializer_list<std::string_view> extensions, std::string_view setting = "--out");

// check_output, then write_file_atomically.
void write_output(std::string_view command, const std::string& path, const OutputKind& kind, std::string_view content,
                  std::string_view setting = "--out");

}  // namespace orrery::models
