// Tokenizers: text to token ids and back.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/settings/registry.h"
#include "engine/settings/spec.h"
#include "engine/system/hash.h"
#include "engine/types/check.h"
#include "models/data/text_files.h"

namespace orrery::models {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string name() const = 0;  // in the registry: "byte_pair"
  virtual int64_t size() const = 0;  // of the vocabulary: tokens are 0, 1, ..., size() - 1
  // Throws Error naming what the vocabulary lacks. decode(encode(text)) == text unless documented.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Encodes as much of the text's beginning as following text cannot change. Returns its bytes; 0
  // if only the whole text decides.
  virtual size_t encode_beginning(std::string_view, std::vector<int32_t>&) const { return 0; }
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;  // throws Error on an id beyond the vocabulary
  virtual std::string save() const = 0;                                   // a JSON object; restore_tokenizer reads it
  // Returns true if decode gives the text that these tokens were made of, whichever it was.
  virtual bool decodes_exactly(std::span<const int32_t>) const { return true; }
  // Encodes like encode_beginning or, if `whole`, like encode, and returns the bytes encoded. A
  // tokenizer that may not decode exactly sets `ends`: the offset in the text after each token,
  // where the next token begins. They stay empty if they are unknown.
  virtual size_t encode_with_ends(std::string_view text, bool whole, std::vector<int32_t>& tokens,
                                  std::vector<size_t>& /*ends*/) const {
    if (!whole) return encode_beginning(text, tokens);
    tokens = encode(text);
    return text.size();
  }
  // Returns false for an id in a gap of the vocabulary; it decodes to nothing.
  virtual bool has_token(int32_t number) const { return number >= 0 && number < size(); }
  // Tokens for the beginning and the end of a sentence, if any; encode never returns them.
  virtual std::optional<int32_t> begin() const { return {}; }
  virtual std::optional<int32_t> end() const { return {}; }
  virtual std::optional<int32_t> end_of_text() const { return end(); }  // the token between documents
  // Returns true for a special token that only its own name gives, such as <|endoftext|>. It has no
  // characters of the text, unlike a special token that other text gives too, such as <unk>.
  virtual bool is_mark(int32_t) const { return false; }
  // Returns the id of the added token with this text, as files of other programs name it.
  virtual std::optional<int32_t> number_of_added(std::string_view) const { return {}; }
  // Conventions of the model's family: begin() precedes each text; each token of
  // ends() ends generation.
  virtual bool begins_texts() const { return false; }
  virtual std::vector<int32_t> ends() const { return {}; }
  // Sentences about settings in the tokenizer's files that are not supported here.
  virtual std::vector<std::string> notes() const { return {}; }
};

using TokenizerProgress = std::function<void(double fraction)>;  // called now and then; may be empty

struct TokenizerEntry {
  std::string name, description;
  std::unique_ptr<Tokenizer> (*make)(const TextChunks& text) = nullptr;   // a vocabulary for this text; may be null
  std::unique_ptr<Tokenizer> (*read)(const std::string& path) = nullptr;  // reads files of other programs; may be null
  bool (*reads)(const std::string& path) = nullptr;                       // true if `read` reads that path
  std::unique_ptr<Tokenizer> (*restore)(const std::string& json) = nullptr;  // from what save returned
  // Trains a vocabulary on this text by settings, name(key=value, ...); may be null.
  std::unique_ptr<Tokenizer> (*train)(const TextChunks& text, const Spec& spec,
                                      const TokenizerProgress& progress) = nullptr;
  // Most bytes of text per token. For trained or imported vocabularies: a bound on the mean over a
  // whole text, which is 3 to 6 for natural languages and program code.
  double max_bytes_per_token = 64;
};
Registry<TokenizerEntry>& tokenizers();
#define REGISTER_TOKENIZER(id, ...) \
  [[maybe_unused]] static const bool registered_tokenizer_##id = (tokenizers().add(__VA_ARGS__), true)

// Returns the tokenizer of a setting. A name makes a vocabulary for the text in the file or folder
// `data`: "character" has its Unicode characters, "byte" all 256 bytes,
// "sentence_piece(vocabulary=6000)" is trained on it. A path loads a tokenizer made elsewhere: a
// folder with vocab.json and merges.txt, with tokenizer.json or with a .model, or such a file.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name_or_path, const TextSource& data,
                                          const TokenizerProgress& progress = {});
// Like the above, but calls `text` only if a vocabulary is made from it.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name_or_path, const std::function<std::string()>& text);
// Returns the tokenizer that Tokenizer::save wrote. Throws Error if the JSON is not such a text.
std::unique_ptr<Tokenizer> restore_tokenizer(const std::string& json);
std::string saved_token_ids(int64_t vocabulary);        // the tokenizer token_ids, as Tokenizer::save returns it
bool is_made_of_text(const std::string& name_or_path);  // a name that makes a vocabulary; else a path
// Returns the fingerprint of save(), without members that change no tokens and are new.
Fingerprint fingerprint_of(const Tokenizer& tokenizer);
// Returns true if both give a text equal tokens; tokens around it may differ (TokenizerOverrides).
bool is_same_tokenizer(const Tokenizer& one, const Tokenizer& other);
// Returns the fewest tokens of a text of `bytes` bytes with this setting or tokenizer name.
double min_token_count(const std::string& name_or_path, uint64_t bytes);

// Returns true if the path has a tokenizer of a supported kind.
bool has_tokenizer(const std::string& path);
// Error of a tokenizer that is intact, as far as it was read, but needs an unsupported feature.
class TokenizerNotSupported : public Error {
 public:
  using Error::Error;
};
// Properties that replace those of a tokenizer's own files; empty ones leave theirs.
struct TokenizerOverrides {
  std::optional<int32_t> begin = {}, end = {};
  std::optional<bool> begins_texts = {};
  std::optional<std::vector<int32_t>> ends = {};
  // Vocabulary size of the model; a text with a token beyond it throws Error.
  std::optional<int64_t> vocabulary = {};
  std::vector<std::string> notes = {};  // in addition to its own
};
// Returns the tokenizer with these properties, which are saved and restored with it.
std::unique_ptr<Tokenizer> with_overrides(std::unique_ptr<Tokenizer> tokenizer, TokenizerOverrides overrides);

// Encodes a text; the begin() token comes first if begins_texts().
std::vector<int32_t> encode_text(const Tokenizer& tokenizer, std::string_view text);
// Throws Error if memory cannot hold the encoding of a word, or of any text that is encoded at once.
void check_word_memory(size_t bytes);
// Returns the tokens from which generation without a prompt starts: begin(), else a line break,
// else token 0.
std::vector<int32_t> beginning_of_text(const Tokenizer& tokenizer);
// Returns the ids below `vocabulary` without a token: in a gap, or beyond the tokenizer's size.
std::vector<int32_t> ids_without_token(const Tokenizer& tokenizer, int64_t vocabulary);

// Encodes each document like encode_text. If there are several, end_of_text(), if any, follows each;
// without it, a line break follows each if a file has many. Calls `take` with parts of the tokens, so
// a long text needs little memory, and `progress` with the bytes read. Errors name the file.
// `characters`: those of the text by token, also the ones that decode omits; empty if the tokenizer
// does not set encode_with_ends's ends. Returns the tokens [begin, end) of each file; if the file is
// a document, without the token that follows it.
using TakeTokens = std::function<void(std::span<const int32_t> tokens, std::span<const int32_t> characters)>;
std::vector<std::pair<int64_t, int64_t>> encode_files(const Tokenizer& tokenizer, const TextFiles& text,
                                                      const TakeTokens& take,
                                                      const std::function<void(uint64_t bytes)>& progress = {});

constexpr std::string_view unreadable_tokenizer = "tokenizer: cannot be restored";
// Throws Error unless 0 <= token < size.
void check_token(int32_t token, int64_t size);

}  // namespace orrery::models
