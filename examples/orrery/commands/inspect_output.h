// The files of `orrery inspect --out`: arrays with the names of their rows and columns, and metrics.
//
//   FILE.safetensors  arrays, and metrics as one element each. Metadata: run, example, tokens (a JSON list of the
//                     tokens or positions; of a pair also source_tokens), and arrays: a JSON object with the names
//                     of each array
//   a folder          FILE.npy and FILE.json for each array, metrics.csv. The JSON has the metadata of that array
//   FILE.csv          metrics alone
// Names of an array: its quantity, and for each axis a name and the labels of its elements; without labels they are
// numbered. The axes of a hook value are those of models/inspection/base/hook_axes.h, such as position, head and key.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/tensor/safetensors.h"
#include "models/formats/json.h"
#include "models/inspection/base/inspected_example.h"
#include "models/inspection/base/view.h"

namespace orrery::program {

struct NamedArray {
  NamedTensor tensor;
  models::Json names;  // an object
};

std::vector<int64_t> sizes_of(const Shape& shape);
// Returns the maps as they are, and each line as two rows, x and y.
std::vector<NamedArray> arrays_of(std::span<const models::View> views);
// Returns the value of a hook as an array of this name, and names its axes.
NamedArray hook_array(const models::InspectedExample& example, const std::string& hook, const std::string& name,
                      const Tensor& value);
// Returns the metadata: the run, the example ("held_out:17") and its tokens.
models::Json origin_of(const std::string& run, const std::string& example, const models::InspectedExample& inspected);

// Throws for unknown extensions, which would silently become a folder's name, and for a path that
// must not be replaced. Call it before the analyses.
void check_out(const std::string& out);
// Writes arrays and metrics, and prints the number of files or tensors.
void write_out(const std::string& out, std::span<const NamedArray> arrays, const std::map<std::string, double>& metrics,
               const models::Json& origin);

}  // namespace orrery::program
