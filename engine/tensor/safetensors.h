// Files of named tensors in the safetensors format: eight bytes with the header's length, a JSON header of dtypes,
// shapes and offsets, then the numbers, little-endian.  https://huggingface.co/docs/safetensors
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/system/files.h"
#include "engine/tensor/tensor.h"

namespace orrery {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

struct OtherTensor {  // of a dtype that tensors here do not have: BOOL, U8, I64, F8_E4M3, ...
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;  // little-endian, row by row
};

struct SafetensorsFile {
  std::vector<NamedTensor> tensors;  // in the order of their numbers in the file; on the CPU
  std::map<std::string, std::string> metadata;
  std::set<std::string> halves = {};     // names of the tensors that the file has as F16
  std::vector<OtherTensor> others = {};  // in the same order
};

// Whole or not at all (engine/system/files.h), in the given order, the same bytes for the same tensors; the header is
// padded with spaces to a multiple of eight.  Names must differ.
void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

// An Error unless the file holds, byte for byte, what write_safetensors writes for these tensors.
void check_written(const std::string& path, std::span<const NamedTensor> tensors,
                   const std::map<std::string, std::string>& metadata = {});

// The dtype that a tensor here has for a dtype of the format: F32, F64, BF16 and I32, and f32 for F16; none for others.
std::optional<Dtype> dtype_of_word(std::string_view word);

struct TensorEntry {  // a tensor as a header describes it
  std::string name, dtype = "";
  std::vector<uint64_t> shape = {};
  uint64_t begin = 0, end = 0;  // bytes, from the first number in the file
};

// A file whose header is read, and whose numbers are read one tensor at a time, after memory for them is checked.  The
// format's rules are checked: each tensor begins where the one before it ends, the last ends with the file, no name
// stands twice.  A file that is cut short, damaged or of a dtype that the format lacks is an Error that names it and
// what is wrong.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);
  const std::vector<TensorEntry>& entries() const { return entries_; }  // in the order of their numbers
  std::map<std::string, std::string> take_metadata() { return std::move(metadata_); }
  Tensor tensor(const TensorEntry& entry) const;                 // of a dtype that tensors here have; on the CPU
  std::vector<std::byte> bytes(const TensorEntry& entry) const;  // of any other

 private:
  uint64_t first(const TensorEntry& entry) const { return first_number_ + entry.begin; }
  void check_memory_of(const TensorEntry& entry, uint64_t bytes) const;
  std::string path_;
  FileReader file_;
  uint64_t first_number_ = 0;  // its byte
  std::vector<TensorEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

// All tensors of a file.  Memory for all is checked before the first is read.
SafetensorsFile read_safetensors(const std::string& path);

}  // namespace orrery
