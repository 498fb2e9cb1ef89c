// Arrays for NumPy: the mark \x93NUMPY, the version 1.0, the header's length in two bytes, the header (a Python
// dictionary, padded so that the numbers begin at a multiple of 64), then the numbers row by row, little-endian.
// Unlike NumPy's own it has two spaces before the header's closing brace, by which output_file.h knows ours.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <span>
#include <string>

#include "models/exchange/base/stored_tensors.h"
#include "models/formats/output_file.h"

namespace orrery::models {

// Whole or not at all.  bf16, which NumPy lacks, is written as f32, the same numbers.  A dtype that it has no word for
// (F8_E4M3, F4, ...) is an Error.
void write_npy(const std::string& path, const StoredTensor& tensor);
OutputKind npy_kind();

}  // namespace orrery::models
