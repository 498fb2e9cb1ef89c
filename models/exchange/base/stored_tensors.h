// Tensors as they lie in files, of whatever dtype: what `orrery show` lists and what an import begins with.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/tensor/safetensors.h"

namespace orrery::models {

struct StoredTensor {
  std::string name, dtype;  // the dtype as the file says it: F32, F16, I64, ...
  std::vector<int64_t> shape;
  Tensor tensor;                 // undefined for a dtype that tensors do not have; f32 for F16
  std::vector<std::byte> bytes;  // the numbers of such a one
  // The file that has the numbers, and the number of its entry there, as long as they are not read.
  std::shared_ptr<const SafetensorsReader> file = {};
  size_t entry = 0;
};
// The tensor with its numbers, which are read now unless it has them.
StoredTensor with_numbers(const StoredTensor& tensor);
std::string shape_text(const StoredTensor& tensor);  // "(2, 3)"

// The tensors, as the headers describe them and without their numbers, of
//   a safetensors file;
//   a folder with model.safetensors, or with model.safetensors.index.json, which names the files that have them;
//   a checkpoint, or a run: the weights of its last one.
// Errors name the file and what is wrong; a tensor in two files, or named by the index and missing, is one.
std::vector<StoredTensor> stored_tensors(const std::string& path);
// Of one folder as others write it; an Error if it has neither file.  An index may name tensors that no file has, if
// they are in `may_lack`: a head that is the embedding again.
std::vector<StoredTensor> stored_tensors_of_folder(const std::string& folder,
                                                   const std::set<std::string>& may_lack = {});

bool is_pickle(const std::string& path);  // whether it is a file as torch.save writes it, by its first bytes
// An Error that says how to convert it, if the file, or one of the folder, is one.
void refuse_pickles(const std::string& path);

int64_t count_of(const StoredTensor& tensor);  // its numbers

struct NumberRange {
  int64_t finite = 0, not_finite = 0;  // how many
  double low = 0, high = 0, mean = 0;  // of the finite ones
};
// Without numbers for dtypes that C++ has no type for: complex ones, and eight bits or fewer with a point.
NumberRange range_of(const StoredTensor& tensor);

// Whole numbers of whatever dtype, as a tensor of i32; an Error if one does not fit or they are no whole numbers.
Tensor as_tokens(const StoredTensor& tensor);

}  // namespace orrery::models
