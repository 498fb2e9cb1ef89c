// Formats of pairs of sentences, which --data accepts; each is one file in models/data/pairs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/settings/registry.h"
#include "models/data/lines.h"

namespace orrery::models {

using TextPair = std::pair<std::string, std::string>;  // source and target

// Files of pairs: two files, line by line, or one file.
struct PairFiles {
  std::string source = {}, target = {};          // target empty: source has both
  int64_t source_column = 1, target_column = 2;  // from 1
  // Consecutive lines with equal text in this column are one document, joined by spaces; 0: each
  // line is a pair.
  int64_t document_column = 0;
  int64_t document_lines = 0;  // maximum per pair; the next lines form another pair; 0: no limit
  std::string source_field = "source", target_field = "target";  // of JSONL; empty: the file is not read as such
};

struct PairFormat {
  std::string name, description;
  bool (*reads)(const PairFiles& files);  // whether the files have this format
  // Throws Error if a file cannot be read or is empty, or if a pair lacks a side.
  std::vector<TextPair> (*read)(const PairFiles& files);
  bool of_any_file = false;  // accepts files of any name, so it is tried last
};
Registry<PairFormat>& pair_formats();
bool add_pair_format(const PairFormat& format);  // also to the catalogue of data
#define REGISTER_PAIR_FORMAT(id, ...) \
  [[maybe_unused]] static const bool registered_pair_format_##id = add_pair_format(__VA_ARGS__)

const PairFormat* find_pair_format(const PairFiles& files);  // null if no format reads them
const PairFormat& pair_format_of(const PairFiles& files);  // throws Error with all formats if none reads them
// Also throws Error if document_lines is set without document_column.
std::vector<TextPair> read_pairs(const PairFiles& files);

// For formats without columns. Throws Error if one is set; `what` states what the files are instead.
void check_no_columns(const PairFiles& files, const std::string& what);
// Like each_kept_line; throws Error if there is no line.
void each_line_of_pairs(const std::string& path, const TakeLine& take);
constexpr const char* fewer_pairs = "use fewer pairs";  // if memory is short

}  // namespace orrery::models
