#include "models/data/file_count.h"

#include <vector>

#include "engine/settings/registry.h"
#include "engine/types/check.h"

namespace orrery::models {

void FileCount::add(const std::string& kind, const std::string& path) {
  if (of_kind_.empty()) first_ = path;
  ++of_kind_[kind];
}

std::string FileCount::print(const std::string& from, const char* of_one, const char* of_several) const {
  int64_t all = 0;
  std::vector<std::string> kinds;
  for (const auto& [kind, count] : of_kind_) {
    kinds.push_back(text(count, " ", kind));
    all += count;
  }
  return text(all, all == 1 ? " file in " : " files in ", from, " (", join(kinds), "; first: ", first_, ") ",
              all == 1 ? of_one : of_several);
}

}  // namespace orrery::models
