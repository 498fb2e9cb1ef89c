// Tensors in files, of any dtype: listed by `orrery show`, read by imports.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/tensor/safetensors.h"

namespace orrery::models {

struct StoredTensor {
  std::string name, dtype;  // dtype: the file's name for it: F32, F16, I64, ...
  std::vector<int64_t> shape;
  Tensor tensor;                 // undefined for dtypes that Tensor lacks; f32 for F16
  std::vector<std::byte> bytes;  // raw values if `tensor` is undefined
  // File with the values and index of the entry, until the values are read; else null.
  std::shared_ptr<const SafetensorsReader> file = {};
  size_t entry = 0;
};
// Returns the tensor with its values; reads them if necessary.
StoredTensor with_values(const StoredTensor& tensor);
std::string shape_text(const StoredTensor& tensor);  // "(2, 3)"

// Returns the tensors without values, as headers describe them, of
//   a safetensors file;
//   a folder with model.safetensors, or with model.safetensors.index.json, which names the files;
//   a checkpoint, or a run: weights of the last checkpoint.
// Throws if a tensor is in two files or only in the index. Errors name the file and the problem.
std::vector<StoredTensor> stored_tensors(const std::string& path);
// Reads a folder of another program; throws if it has neither file. An index may name tensors that
// no file has, if they are in `optional_names`: a head that is the embedding.
std::vector<StoredTensor> stored_tensors_of_folder(const std::string& folder,
                                                   const std::set<std::string>& optional_names = {});

bool is_pickle(const std::string& path);  // a file of torch.save, by its first bytes
// Throws an error that explains the conversion if the file, or one in the folder, is a pickle.
void refuse_pickles(const std::string& path);

int64_t count_of(const StoredTensor& tensor);  // number of elements

struct ValueRange {
  int64_t finite = 0, not_finite = 0;  // counts
  double low = 0, high = 0, mean = 0;  // range and mean of the finite values; NaN: there are none
};
// Returns counts of 0 for dtypes without a C++ type: complex, and floats of 8 bits or fewer.
ValueRange range_of(const StoredTensor& tensor);

// Returns integers of any dtype as i32. Throws if a value is not an integer or does not fit.
Tensor as_tokens(const StoredTensor& tensor);

}  // namespace orrery::models
