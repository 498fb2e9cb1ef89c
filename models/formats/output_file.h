// Files that commands write where the user says (--out, --page).  One rule: what is there already is replaced only if
// this program wrote it as an output of the same kind.  A file of a run, of another kind or of anybody else stays.
//
// A kind is recognized by what each of its files has at its beginning:
//   page (report, inspect)                 the meta element "generator" of examples/orrery/page/page.html
//   picture.svg (study)                    the attributes of its svg element
//   *.csv (metrics, inspect, sweep, study) the header line; of metrics also rows that its run noted, if the columns
//                                          are others
//   *.npy (show, inspect)                  two spaces before the header's closing brace (models/exchange/npy.h)
//   *.safetensors (inspect)                its metadata, {"written_by": "orrery inspect"}
//   events of TensorBoard (metrics)        the first record, whose time is 0
//   verdict.json, sweep.json, README.md    the first member, the heading
//   settings.toml, metrics.jsonl, probe.json (train)  the first line, the first row, all of it
// prepare, export and verify_resume replace nothing at all.  Nothing is written into a checkpoint, not even a file that
// is new: a folder that holds more than its own files is never removed.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "engine/system/files.h"

namespace orrery::models {

struct OutputKind {
  std::string name;                                      // "a page of orrery", as an error has it
  std::function<bool(const std::string& path)> is_ours;  // of a regular file
};
// A kind whose files have `first` at byte `at`, and `later` in what follows.
OutputKind marked_kind(std::string name, std::string first, std::string later = "", size_t at = 0);

// The file that makes a folder a checkpoint, and how all that are ours begin what they call their format.
inline constexpr const char *state_name = "state.json", *checkpoint_formats = "orrery checkpoint ";
// Error if `path` would lie in a checkpoint, or is its folder:
//   inspect: --out=runs/a/step_000050/x.npy would lie in the checkpoint runs/a/step_000050, which holds its own files
//   alone; choose another --out
void check_outside_checkpoints(std::string_view command, const std::string& path, std::string_view setting = "--out");

// Called before the work that makes the file, so that it is not done in vain.  Error, where `setting` names the path:
//   report: notes.txt is not a page of orrery and would be replaced; choose another --out, or remove it
void check_output(std::string_view command, const std::string& path, const OutputKind& kind,
                  std::string_view setting = "--out");

// check_output, then write_file_atomically.
void write_output(std::string_view command, const std::string& path, const OutputKind& kind, std::string_view content,
                  std::string_view setting = "--out");

}  // namespace orrery::models
