#include "engine/settings/registry.h"

#include <algorithm>
#include <numeric>

#include "engine/types/ascii.h"
#include "engine/types/usage_error.h"

namespace orrery {
namespace {

// Counts the letters to insert, delete, replace or swap with an adjacent one to turn a into b.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string longest_beginning(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  for (const std::string& candidate : candidates)
    if (candidate.size() >= 3 && candidate.size() > best.size() && word.starts_with(candidate)) best = candidate;
  return best;
}

}  // namespace

std::string nearest(std::string_view given, std::span<const std::string> candidates) {
  const std::string word = lower_case(std::string(given));
  std::string best;
  size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    size_t distance = edit_distance(word, candidate);
    if (word.size() >= 3 && candidate.starts_with(word)) distance = 1;  // an abbreviation
    const bool near = distance <= std::max<size_t>(1, std::max(word.size(), candidate.size()) / 3);
    if (near && distance < candidate.size() && (best.empty() || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best.empty() ? longest_beginning(word, candidates) : best;
}

std::string join(std::span<const std::string> words, std::string_view between) {
  std::string all;
  for (const std::string& word : words) all.append(all.empty() ? "" : between).append(word);
  return all;
}

void detail::fail_unknown(std::string_view family, std::string_view word, std::span<const std::string> names,
                          const std::map<std::string, std::string, std::less<>>& aliases, std::string_view meant) {
  std::vector<std::string> known(names.begin(), names.end());
  for (const auto& [alias, name] : aliases) known.push_back(alias);
  std::string message = text(family, ": '", word, "' is unknown; ");
  if (const std::string near = meant.empty() ? nearest(word, known) : std::string(meant); !near.empty()) {
    const auto alias = aliases.find(near);
    message += text("did you mean '", near, "'", alias == aliases.end() ? "" : " (" + alias->second + ")", "? ");
  }
  fail_usage(message, "available: ", names.empty() ? "none" : join(names));
}

}  // namespace orrery
