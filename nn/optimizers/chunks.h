// An optimizer's update as a row operation over a flat buffer: chunks of fixed width, and the rest as a shorter row.
#pragma once

#include "engine/loops.h"

namespace orrery::nn {

inline constexpr int chunk_width = 4096;

// `update` is a row functor whose row r begins at element update.offset + r * chunk_width.
template <class Update>
void update_chunks(Device device, int64_t count, Update update) {
  rows(device, count / chunk_width, chunk_width, update);
  update.offset = count / chunk_width * chunk_width;
  if (update.offset < count) rows(device, 1, static_cast<int>(count - update.offset), update);
}

}  // namespace orrery::nn
