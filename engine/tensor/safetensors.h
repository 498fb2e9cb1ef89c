// Files of named tensors in the safetensors format: eight bytes with the header's length, a JSON
// header, then the tensors' data, all little-endian. https://huggingface.co/docs/safetensors
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

struct OtherTensor {  // a tensor of a dtype that `Tensor` lacks: BOOL, U8, I64, F8_E4M3, ...
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;  // little-endian, row by row
};

struct SafetensorsFile {
  std::vector<NamedTensor> tensors;  // in the order of their data in the file; on the CPU
  std::map<std::string, std::string> metadata;
  std::set<std::string> halves = {};     // names of the tensors that the file stores as F16
  std::vector<OtherTensor> others = {};  // in the order of their data in the file
};

// Writes the tensors atomically (engine/system/files.h), in the given order; equal tensors give
// equal bytes. Spaces pad the header to a multiple of eight bytes. Names must differ.
void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

// Throws unless the file has exactly the bytes that write_safetensors writes for these tensors.
void check_written(const std::string& path, std::span<const NamedTensor> tensors,
                   const std::map<std::string, std::string>& metadata = {});

// Returns the dtype for a name of the format: F32, F64, BF16, I32; f32 for F16; none for others.
std::optional<Dtype> dtype_of_name(std::string_view word);

struct TensorEntry {  // a tensor as its header describes it
  std::string name, dtype = "";
  std::vector<uint64_t> shape = {};
  uint64_t begin = 0, end = 0;  // bytes [begin, end), from the start of the data
};

// A reader that reads the header first, then the data of one tensor at a time, after it has checked the memory for
// them. Each tensor must begin where the previous one ends, the last must end with the file, and names must differ. An
// Error names the file and its fault: cut short, damaged, or a dtype that the format lacks.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);
  const std::vector<TensorEntry>& entries() const { return entries_; }  // in the order of their data
  std::map<std::string, std::string> take_metadata() { return std::move(metadata_); }
  Tensor tensor(const TensorEntry& entry) const;                 // for a dtype that `Tensor` has; on the CPU
  std::vector<std::byte> bytes(const TensorEntry& entry) const;  // for any other dtype

 private:
  uint64_t first(const TensorEntry& entry) const { return first_number_ + entry.begin; }
  void check_memory_of(const TensorEntry& entry, uint64_t bytes) const;
  std::string path_;
  FileReader file_;
  uint64_t first_number_ = 0;  // offset of the data in the file, bytes
  std::vector<TensorEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

// Returns all tensors of a file; checks the memory for all of them before it reads the first.
SafetensorsFile read_safetensors(const std::string& path);

}  // namespace orrery
