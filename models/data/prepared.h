// A text as tokens, made once: what `orrery prepare` writes, and what nanoGPT and llm.c make.
//   DIR/train.bin, DIR/val.bin   tokens (models/data/token_sequence.h)
//   DIR/tokens.json              the tokenizer and what the files must hold; without it, a tokenizer must be given
// A single .bin file is read, too: all of its tokens, to be divided like a text's.  Each may be packed by gzip since,
// as .bin.gz, whose tokens memory then holds, and as tokens.json.gz.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "engine/system/hash.h"
#include "models/data/token_sequence.h"
#include "models/data/tokenizer.h"

namespace orrery::models {

struct PreparedTokens {
  TokenSequence train, validation;  // without tokens: none were set apart
  Fingerprint fingerprint;          // of the files, one after the other
};

bool is_prepared(const std::string& path);  // a folder with train.bin, or a file that ends in .bin; or in .bin.gz
// Errors: a file that is damaged, is missing or not the one that tokens.json tells of, or holds what is no token.
PreparedTokens read_prepared(const std::string& path, int64_t vocabulary);
// The tokenizer of a prepared folder, if it tells.
std::unique_ptr<Tokenizer> tokenizer_of_prepared(const std::string& path);

struct Preparation {
  std::string input = {}, validation_input = {}, out = {}, tokenizer = "byte";
  double validation_fraction = 0.1;  // of the tokens, at their end; not used with a validation_input
};
struct Prepared {
  int64_t train, validation;  // tokens
  int64_t vocabulary;
  std::vector<std::string> notes = {};  // of the tokenizer, as Tokenizer::notes has them
};
// Reads a text, which memory need not hold, and writes a folder as above.  `progress` is told what is done of a share,
// "learned" or "read".
Prepared prepare(const Preparation& preparation,
                 const std::function<void(const std::string& done, double share)>& progress = {});

// The first tokens and the last, a fraction of all.
std::pair<TokenSequence, TokenSequence> split(const TokenSequence& tokens, double last);
void check_validation_fraction(double fraction);

}  // namespace orrery::models
