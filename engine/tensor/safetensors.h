// Files of named tensors in the safetensors format: eight bytes with the header's length, a JSON header of dtypes,
// shapes and offsets, then the numbers, little-endian.  https://huggingface.co/docs/safetensors
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

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

// Whole or not at all (engine/base/files.h), in the given order, the same bytes for the same tensors; the header is
// padded with spaces to a multiple of eight.  Names must differ.
void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

// An Error unless the file holds, byte for byte, what write_safetensors writes for these tensors.
void check_written(const std::string& path, std::span<const NamedTensor> tensors,
                   const std::map<std::string, std::string>& metadata = {});

// F32, F64, BF16 and I32; F16 is read as f32, the format's other dtypes as bytes.  The format's rules are checked: each
// tensor begins where the one before it ends, the last ends with the file, no name stands twice.  A file that is cut
// short, damaged or of a dtype that the format lacks is an Error that names it and what is wrong.  Takes at most 16
// times the file's size of memory, whatever stands in it.
SafetensorsFile read_safetensors(const std::string& path);

}  // namespace orrery
