// What a run has noted, as an event file of TensorBoard.  The file is a sequence of records (TensorFlow's TFRecord),
//
//   bytes       length n of the data, little-endian       8
//               masked CRC32C of these 8 bytes            4
//               data                                      n
//               masked CRC32C of the data                 4
//
// where masked is ((c >> 15) | (c << 17)) + 0xa282ead8.  The data are protocol buffers, fields of
// (number << 3 | kind) and the value; kind 0 is a varint, seven bits a byte from the lowest, the last without the
// eighth bit; 1 is eight bytes, 5 four, little-endian; 2 a varint of a length and so many bytes:
//
//   Event     1 wall_time, double   2 step, varint   3 file_version, text: of the first record   5 summary, Summary
//   Summary   1 value, Value, for each figure
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

// A record for each row that has one of the figures, whose names are the tags; their numbers are rounded to f32, as
// the format has them.  The wall time is the seconds that the steps up to there have taken, from 0 at the run's
// beginning (`milliseconds` of the rows), so that the same rows give the same bytes.  Returns the number of rows.
int64_t tensorboard_events(const RunLog& log, std::span<const std::string> figures,
                           const std::function<void(std::string_view)>& write);

uint32_t crc32c(std::string_view bytes);  // Castagnoli's: 0xe3069283 of "123456789"

}  // namespace orrery::models
