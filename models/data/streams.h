// A text as streams: each row of a batch reads on where it stopped at the step before.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "models/data/text.h"

namespace orrery::models {

// Row r of R begins at token r N / R of N, reads `context` tokens a step, and after the last token goes on with the
// first. What a step reads depends on its number alone, so that resuming agrees.
class TextStreams {
 public:
  // An Error, beginning with `what`, if there are fewer tokens than the rows read in a step.
  TextStreams(TokenSequence tokens, int64_t rows, int64_t context, const std::string& what);
  Batch at(int64_t step, int64_t first_row, int64_t rows) const;  // of some rows: each tensor (rows, context)

 private:
  TokenSequence tokens_;
  int64_t rows_, context_;
};

// The text once, as up to `rows` streams of about the same length, in blocks of `context`: every token but the first is
// a target exactly once.  Where a row has ended its target is -1, which no loss counts.  Ends early where `take` says
// false.
void each_block(const TokenSequence& tokens, int64_t context, int64_t rows,
                const std::function<bool(const Batch&)>& take);

}  // namespace orrery::models
