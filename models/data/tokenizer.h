// Tokenizers: from text to numbers and back.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/settings/spec.h"
#include "engine/settings/registry.h"
#include "engine/system/hash.h"
#include "engine/types/check.h"
#include "models/data/text_files.h"

namespace orrery::models {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string name() const = 0;
  virtual int64_t size() const = 0;  // of the vocabulary: tokens are 0, 1, ..., size() - 1
  // Errors name what the vocabulary lacks.  decode(encode(text)) == text, unless the tokenizer says that it changes it.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // The tokens of as much of a text's beginning as cannot become others, whatever follows; returns its bytes.  0: not
  // known before the text is whole.
  virtual size_t encode_beginning(std::string_view, std::vector<int32_t>&) const { return 0; }
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;  // a number beyond size() is an Error
  virtual std::string save() const = 0;                                   // a JSON object; restore_tokenizer reads it
  // False for a number in a gap of the vocabulary, which is decoded to nothing.
  virtual bool has_token(int32_t number) const { return number >= 0 && number < size(); }
  // Tokens that stand for the beginning and the end of a sentence and that encode never gives; none: there are no such.
  virtual std::optional<int32_t> begin() const { return {}; }
  virtual std::optional<int32_t> end() const { return {}; }
  virtual std::optional<int32_t> end_of_text() const { return end(); }  // the token between documents
  // What the programs of the model's family put around a text: begin() before each, and the tokens at which writing
  // ends.
  virtual bool begins_texts() const { return false; }
  virtual std::vector<int32_t> ends() const { return {}; }
  // Sentences about what its files ask for and what is not done here, once it was read from them.
  virtual std::vector<std::string> notes() const { return {}; }
};

using LearningProgress = std::function<void(double share)>;  // told now and then; it may be empty

struct TokenizerEntry {
  std::string name, description;
  std::unique_ptr<Tokenizer> (*make)(const TextPieces& text) = nullptr;   // a vocabulary for this text; null: none
  std::unique_ptr<Tokenizer> (*read)(const std::string& path) = nullptr;  // from files of others; null: there are none
  bool (*reads)(const std::string& path) = nullptr;                       // whether that path is for `read`
  std::unique_ptr<Tokenizer> (*restore)(const std::string& json) = nullptr;  // from what save wrote
  // A vocabulary learned from this text, by settings: name(key=value, ...); null: it has none.
  std::unique_ptr<Tokenizer> (*train)(const TextPieces& text, const Spec& spec,
                                      const LearningProgress& progress) = nullptr;
  // Bytes of a text for which there is a token at least.  Of pieces that are learned or read it is a bound on their
  // mean over a whole text, which is 3 to 6 in languages and programs.
  double most_bytes_of_token = 64;
};
Registry<TokenizerEntry>& tokenizers();
#define REGISTER_TOKENIZER(id, ...) \
  [[maybe_unused]] static const bool registered_tokenizer_##id = (tokenizers().add(__VA_ARGS__), true)

// What a setting says: a name that makes a vocabulary for the text in the file or folder `data` ("character": its
// Unicode characters; "byte": all 256 bytes; "sentence_piece(vocabulary=6000)": learned from it), or the path of a
// tokenizer made elsewhere: a folder with vocab.json and merges.txt, with tokenizer.json or with a .model, or such a
// file.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name_or_path, const std::string& data,
                                          const LearningProgress& progress = {});
// The same for a text that is asked for only if a vocabulary is made of it.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name_or_path, const std::function<std::string()>& text);
std::unique_ptr<Tokenizer> restore_tokenizer(const std::string& json);
bool is_made_of_text(const std::string& name_or_path);   // a name of which a vocabulary is made; else it is a path
Fingerprint fingerprint_of(const Tokenizer& tokenizer);  // of what it saves
// The fewest tokens that a text of so many bytes has, by the setting or the tokenizer's name.
double least_tokens(const std::string& name_or_path, uint64_t bytes);

// Whether there is a tokenizer at that path, of a kind that is read here.
bool has_tokenizer(const std::string& path);
// Of one that is whole, as far as it was read, but says what this program cannot do.
class TokenizerNotSupported : public Error {
 public:
  using Error::Error;
};
// What a tokenizer's own files do not tell of it; none: what they tell.
struct TokenizerUse {
  std::optional<int32_t> begin = {}, end = {};
  std::optional<bool> begins_texts = {};
  std::optional<std::vector<int32_t>> ends = {};
  // So many tokens are known to the model: a text with another one is an Error.
  std::optional<int64_t> vocabulary = {};
  std::vector<std::string> notes = {};  // beside its own
};
// The same tokenizer, used in that way, and saved and restored with it.
std::unique_ptr<Tokenizer> with_use(std::unique_ptr<Tokenizer> tokenizer, TokenizerUse use);

// A text's tokens, after the one that begins it if this tokenizer's texts begin with one.
std::vector<int32_t> encode_text(const Tokenizer& tokenizer, std::string_view text);
// What a text that is made from nothing goes on from: the token that begins one, else a line's end, else the first
// token.
std::vector<int32_t> beginning_of_text(const Tokenizer& tokenizer);
// Of so many numbers those that are no tokens, because the model has more of them or the tokenizer a gap.
std::vector<int32_t> numbers_without_token(const Tokenizer& tokenizer, int64_t vocabulary);

// The tokens of each file as encode_text gives them, and after it the token between documents if there are several and
// the tokenizer has one;
// `take` gets them in pieces, so that memory holds little of a long text; `progress` is told of the bytes that are
// read.  Errors say in which file.
using TakeTokens = std::function<void(std::span<const int32_t> tokens)>;
void encode_files(const Tokenizer& tokenizer, const TextFiles& text, const TakeTokens& take,
                  const std::function<void(uint64_t bytes)>& progress = {});

constexpr std::string_view unreadable_tokenizer = "tokenizer: cannot be restored";
// An Error if the number is no token of a vocabulary of that size.
void check_token(int32_t token, int64_t size);

}  // namespace orrery::models
