// TensorBoard event files of a run's log. A file is a sequence of TFRecord records,
//
//   bytes       length n of the data, little-endian       8
//               masked CRC32C of these 8 bytes            4
//               data                                      n
//               masked CRC32C of the data                 4
//
// where masked is ((c >> 15) | (c << 17)) + 0xa282ead8. Data are protocol buffers: fields of
// (number << 3 | kind) and a value. Kinds: 0 varint, 7 bits per byte, lowest first, bit 8 set
// except in the last; 1 eight bytes, 5 four bytes, little-endian; 2 varint length and its bytes:
//
//   Event     1 wall_time, double   2 step, varint   3 file_version, text: first record only   5 summary, Summary
//   Summary   1 value, Value, for each metric
//   Value     1 tag, text           2 simple_value, float
//
// tensorflow/core/util/event.proto, framework/summary.proto and lib/io/record_writer.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "models/study/run_log.h"

namespace orrery::models {

// Writes a record for each row with any of `metrics`; tags are metric names, values are rounded to
// f32. Wall time is the sum of `step_ms` up to the row, in s from 0, so that equal rows give
// equal bytes. Returns the number of rows in the log.
int64_t tensorboard_events(const RunLog& log, std::span<const std::string> metrics,
                           const std::function<void(std::string_view)>& write);

uint32_t crc32c(std::string_view bytes);  // Castagnoli polynomial: 0xe3069283 for "123456789"

}  // namespace orrery::models
