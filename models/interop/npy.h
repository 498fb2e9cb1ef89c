// NumPy's .npy: the magic \x93NUMPY, version 1.0, the header's length in 2 bytes, the header (a
// Python dictionary, padded with spaces so that the values begin at a multiple of 64 bytes), then
// row-major little-endian values. Two spaces before the header's closing brace mark orrery's files
// for output_file.h.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <string>

#include "models/formats/output_file.h"
#include "models/interop/base/stored_tensors.h"

namespace orrery::models {

// Writes the file atomically. bf16 is written as f32, because NumPy lacks it; the values are equal.
// F16 is written as f32 too, as it is in memory.
// Throws for dtypes that NumPy lacks (F8_E4M3, F4, ...).
void write_npy(const std::string& path, const StoredTensor& tensor);
OutputKind npy_kind();

}  // namespace orrery::models
