// A count of files by kind, with one sentence about them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace orrery::models {

class FileCount {
 public:
  void add(const std::string& kind, const std::string& path);
  bool empty() const { return of_kind_.empty(); }
  // Returns "3 files in FOLDER (1 .bak, 2 .png; first: FOLDER/a.bak) " and `of_one` or `of_several`.
  std::string print(const std::string& from, const char* of_one, const char* of_several) const;

 private:
  std::map<std::string, int64_t> of_kind_;
  std::string first_;  // path
};

}  // namespace orrery::models
