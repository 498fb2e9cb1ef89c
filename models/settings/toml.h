// Checks of a TOML text before parsing: Debian 12's toml++ recurses for each bracket and each dot
// of a key, and has undefined behavior on some unusual words.
#pragma once

#include <cstdint>
#include <string_view>

namespace orrery::models {

constexpr uint64_t max_toml_bytes = uint64_t{1} << 20;  // bytes; for read_file

// Throws Error if the text is longer, more deeply nested or has more items than any file of
// settings, or has a character that none needs; the message begins with path and line:
//   run.toml:1: brackets are nested more than 16 levels deep
void check_toml(std::string_view text, std::string_view path);

}  // namespace orrery::models
