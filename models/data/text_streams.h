// Text streams: each row of a batch continues where it stopped in the previous step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "models/data/text.h"

namespace orrery::models {

// Row r of R begins at token r N / R of N, reads `context` tokens per step, and wraps around at the
// end. The tokens of a step depend only on its number, so a resumed run is identical.
class TextStreams {
 public:
  // Throws Error unless there are more than rows * context tokens; the message begins with `what`.
  TextStreams(TokenSequence tokens, int64_t rows, int64_t context, const std::string& what);
  Batch at(int64_t step, int64_t first_row, int64_t rows) const;  // some rows; each tensor (rows, context)

 private:
  TokenSequence tokens_;
  int64_t rows_, context_;
};

// Passes the text to `take` once, as up to `rows` streams of similar length, in blocks of
// `context`. Every token except the first is a target exactly once. After a row's end its targets
// are -1, which no loss counts. Stops early if `take` returns false.
void each_block(const TokenSequence& tokens, int64_t context, int64_t rows,
                const std::function<bool(const Batch&)>& take);

}  // namespace orrery::models
