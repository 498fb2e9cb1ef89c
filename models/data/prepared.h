// Tokens of a text, as `orrery prepare`, nanoGPT and llm.c write them:
//   DIR/train.bin, DIR/val.bin   tokens (models/data/token_sequence.h)
//   DIR/tokens.json              the tokenizer and what the files must hold; without it, a tokenizer must be given;
//                                "characters" of a file: those of the text, without the first token's, if decoding
//                                the tokens does not give them; "text" of a file: bytes, hash and tokens
//                                of its text, and the index of the file's first token in it
// A single .bin file is also read and split like a text. Files may be compressed: .bin.gz, whose
// tokens are then held in memory, and tokens.json.gz.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/system/hash.h"
#include "models/data/token_sequence.h"
#include "models/data/tokenizer.h"
#include "models/data/training_data.h"

namespace orrery::models {

struct PreparedTokens {
  TokenSequence train, validation;  // validation: empty if the files have none
  Fingerprint fingerprint;          // of the concatenated files
  std::vector<TextPart> parts;      // of both, in this order: their files, and the texts they were made of
  std::vector<std::string> notes = {};  // sentences about how they are read
};

bool is_prepared(const std::string& path);  // a folder with train.bin, or a file named .bin; .gz too
// Throws Error if a file is damaged, missing, not as in tokens.json, or has an invalid token.
PreparedTokens read_prepared(const std::string& path, int64_t vocabulary);
// Returns the tokenizer in the tokens.json of a prepared folder, or next to a file that it lists;
// null without tokens.json. Where there is none, a file that is a link may lead to one.
std::unique_ptr<Tokenizer> tokenizer_of_prepared(const std::string& path);
// Throws Error if tokenizer_of_tokens is another tokenizer. "token_ids", which imported models
// without a tokenizer have, is accepted with any.
void check_tokenizer_of_prepared(const std::string& path, const Tokenizer& tokenizer);

struct Preparation {
  std::string input = {}, validation_input = {}, out = {}, tokenizer = "byte";
  double validation_fraction = 0.1;  // of the tokens, at their end; unused with validation_input
  std::string text_field = "text";   // TextSource::field
};
struct Prepared {
  int64_t train, validation;  // tokens
  int64_t vocabulary;
  std::vector<std::string> notes = {};  // about the tokenizer and files that are left out
};
// Reads a text, which may exceed memory, and writes a folder as above. Calls `progress` with the
// fraction done: "learned" while the tokenizer is trained, "read" while the text is encoded.
Prepared prepare(const Preparation& preparation,
                 const std::function<void(const std::string& done, double fraction)>& progress = {});

// Returns how many tokens of `all` remain without the last fraction.
int64_t training_tokens(int64_t all, double last);
// Returns the tokens without the last fraction `last`, and that fraction.
std::pair<TokenSequence, TokenSequence> split(const TokenSequence& tokens, double last);
void check_validation_fraction(double fraction);  // throws Error unless it is in [0, 1)

}  // namespace orrery::models
