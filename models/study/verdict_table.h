// The verdicts of a folder of claims, as CSV and as a page that begins with the reversed claims.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "models/formats/output_file.h"
#include "models/study/claim.h"
#include "models/study/verdict_file.h"

namespace orrery::models {

struct ListedVerdict {
  std::string group, name;     // the folder (may be empty) and the file: "relu_former", "softmax_memory_hurts"
  std::optional<Claim> claim;  // none: its file cannot be read
  std::optional<StudyVerdict> verdict;
  std::string error;        // why there is no verdict
  bool has_readme = false;  // the group has a README.md, which the page links to
  bool main() const { return verdict ? verdict->main : claim && claim->main; }
  std::string sentence() const { return verdict ? verdict->sentence : claim ? claim->sentence : ""; }
  std::string source() const { return verdict ? verdict->source : claim ? claim->source : ""; }
  std::string path() const { return group.empty() ? name : group + "/" + name; }
};

OutputKind verdicts_csv_kind();
std::string verdicts_csv(std::span<const ListedVerdict> all);  // study,verdict,claim,found,minutes

// Returns a table of at most ten claims that have a verdict, each with the comparison that decided
// it. If there are more, main claims are preferred and, from each group in turn, those that contradict
// their source most. Links lead to `claims`, a path relative to the page.
std::string short_verdicts(std::span<const ListedVerdict> all, const std::string& claims);

OutputKind verdicts_page_kind();
// Returns Markdown for a folder that contains GROUP/NAME/samples.svg of each claim. It links to the
// claims' files in `claims`, a path relative to the page, and to the groups' README.md, if any.
std::string verdicts_page(std::span<const ListedVerdict> all, const std::string& claims);

}  // namespace orrery::models
