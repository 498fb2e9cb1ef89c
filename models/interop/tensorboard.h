// TensorBoard event files of a run's log. A file is a sequence of TFRecord records,
//
//   bytes       length n of the data, little-endian       8
//               masked CRC32C of these 8 bytes            4
//               data                                      n
//               masked CRC32C of the data                 4
//
// where masked is ((c >> 15) | (c << 17)) + 0xa282ead8 for a CRC c. Data are protocol buffers: each
// field is a varint (number << 3 | wire type) and a value. Wire types: 0 varint, 7 bits per byte,
// lowest first, the high bit set except in the last byte; 1 eight bytes and 5 four bytes,
// little-endian; 2 varint length, then this many bytes:
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

// Writes a record for each row of the log with any of `metrics`; tags are metric names, values are
// rounded to f32. `write` receives the bytes of the file in order. Wall time is the sum of `step_ms`
// up to the row, in s from 0, so that equal rows give equal bytes. Returns the number of rows in the
// log, whether they have these metrics or not.
int64_t tensorboard_events(const RunLog& log, std::span<const std::string> metrics,
                           const std::function<void(std::string_view)>& write);

uint32_t crc32c(std::string_view bytes);  // Castagnoli polynomial: 0xe3069283 for "123456789"

}  // namespace orrery::models
