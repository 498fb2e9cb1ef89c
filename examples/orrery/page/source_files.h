// The source files of components, which pages name and link to.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "models/inspection/base/view.h"
#include "models/reports/report_components.h"

namespace orrery::program {

struct SourceFile {
  std::string_view path, head;  // "nn/activations/silu.cpp"; the comment at its head, if it states a formula
};
// Written by CMake: "activations/silu", and other names that a file registers: "attentions/adaptive_span".
extern const std::map<std::string_view, SourceFile> source_files;

// Links from a page to the files. Without an address they lead from the page's folder to the files
// of the source tree that contains it; a file that does not exist there has no link.
class SourceLinks {
 public:
  static constexpr const char* help =
      "address of the source tree that formulas link to, as https://HOST/orrery/blob/main; if not given, a tree that "
      "contains the page";
  // Throws if the address is not one of https, http or file. An empty page has no links.
  SourceLinks(const std::string& command, const std::string& page, const std::string& address);
  // Returns the file of a family's member, or of a class, if the family is empty.
  models::SourceHead operator()(const std::string& family, const std::string& name) const;
  void add_to(std::span<models::View> views) const;  // adds the formulas of trees of components

 private:
  std::string link_to(const std::string& file) const;
  std::string page_, address_;
};

}  // namespace orrery::program
