// A hash of the sources that determine results: engine, nn, models, and cuda in a build for a GPU,
// without comments and white space. CMake computes it at each build (source_hash.cmake). Runs with
// another hash may have different results.
#pragma once

namespace orrery::models {

extern const char* const source_hash;  // 12 hexadecimal digits

}  // namespace orrery::models
