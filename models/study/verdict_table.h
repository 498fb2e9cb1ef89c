// The verdicts of a folder of claims: as CSV, and as a page that begins with the main ones.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "models/formats/output_file.h"
#include "models/study/claim.h"
#include "models/study/verdict_file.h"

namespace orrery::models {

struct ListedVerdict {
  std::string group, name;  // "relu_former", "softmax_memory_hurts": the folder, which may be empty, and the file
  std::optional<Claim> claim;  // none: its file cannot be read
  std::optional<StudyVerdict> verdict;
  std::string error;       // else
  bool explained = false;  // by a README.md of the group, which the page links to
  bool main() const { return verdict ? verdict->main : claim && claim->main; }
  std::string sentence() const { return verdict ? verdict->sentence : claim ? claim->sentence : ""; }
  std::string source() const { return verdict ? verdict->source : claim ? claim->source : ""; }
  std::string place() const { return group.empty() ? name : group + "/" + name; }
};

OutputKind verdicts_csv_kind();
std::string verdicts_csv(std::span<const ListedVerdict> all);

OutputKind verdicts_page_kind();
// Markdown, for a folder `out` that holds for each claim PLACE/picture.svg; links go to the claims' files, which lie in
// `claims` beside README.md of each group if there is one.  Both are paths as seen from where the page is read.
std::string verdicts_page(std::span<const ListedVerdict> all, const std::string& claims);

}  // namespace orrery::models
