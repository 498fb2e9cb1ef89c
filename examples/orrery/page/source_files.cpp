#include "examples/orrery/page/source_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "engine/system/files.h"
#include "engine/types/usage_error.h"

namespace orrery::program {
namespace {

std::vector<std::string> folders_of(const std::string& family) {
  if (family == "layer") return {"layers", "vision"};
  if (family == "attention_setting") return {"attentions"};
  if (family == "model" || family == "model_preset") return {"architectures"};
  if (family == "problem") return {"algorithmic"};
  return {family + (family.ends_with('s') ? "es" : "s")};
}

const SourceFile* source_of(const std::string& family, const std::string& name) {
  if (!family.empty()) {
    for (const std::string& folder : folders_of(family))
      if (const auto found = source_files.find(folder + "/" + name); found != source_files.end()) return &found->second;
    return nullptr;
  }
  for (const auto& [key, file] : source_files)
    if (key.ends_with("/" + name)) return &file;
  const size_t last = name.rfind('_');  // resnet_block, a class in resnet
  return last == name.npos ? nullptr : source_of("", name.substr(0, last));
}

}  // namespace

SourceLinks::SourceLinks(const std::string& command, const std::string& page, const std::string& address)
    : page_(page), address_(address) {
  constexpr std::array<std::string_view, 3> schemes = {"https://", "http://", "file:///"};
  check_usage(address.empty() || std::any_of(schemes.begin(), schemes.end(),
                                             [&](std::string_view scheme) { return address.starts_with(scheme); }),
              command, ": --source_url=", address,
              " is not an address of https://, http:// or file:///; give one such as https://HOST/orrery/blob/main");
  if (!address.empty() && !address.ends_with('/')) address_ += '/';
}

models::SourceHead SourceLinks::operator()(const std::string& family, const std::string& name) const {
  const SourceFile* const found = source_of(family, name);
  if (!found) return {};
  const std::string file(found->path);
  return {file, link_to(file), std::string(found->head)};
}

std::string SourceLinks::link_to(const std::string& file) const {
  if (!address_.empty() || page_.empty()) return page_.empty() ? "" : address_ + file;
  std::string up;
  for (auto folder = std::filesystem::absolute(page_).lexically_normal().parent_path();; up += "../") {
    if (file_exists((folder / file).string())) return up + file;
    if (folder == folder.parent_path()) return "";
    folder = folder.parent_path();
  }
}

void SourceLinks::add_to(std::span<models::View> views) const {
  for (models::View& view : views)
    if (auto* const tree = std::get_if<models::ComponentsView>(&view.data))
      add_formulas(*tree, *this);
}

}  // namespace orrery::program
