#include "models/data/pretokenizer.h"

#include <new>
#include <optional>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "engine/types/check.h"
#include "models/data/oniguruma.h"
#include "models/formats/unicode.h"

namespace orrery::models {

const char* const gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

template <class Thing, void (*free)(Thing*)>
struct Free {
  void operator()(Thing* thing) const { free(thing); }
};
template <class Thing, void (*free)(Thing*)>
using Owned = std::unique_ptr<Thing, Free<Thing, free>>;

std::string message_of(int error) {
  char words[256];
  pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(words), sizeof words);
  return words;
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

// Returns the end of the run of bytes from `from` that are UTF-8, or are not, as `valid` states.
size_t end_of_run(std::string_view text, size_t from, bool valid) {
  while (from < text.size()) {
    const auto character = character_if_any(text, from);
    if (character.has_value() != valid) break;
    from += character ? character->bytes : 1;
  }
  return from;
}

// Returns whether the pattern may match the beginning of the text or of a line.
bool is_anchored(std::string_view pattern) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '^' && (i == 0 || pattern[i - 1] != '[')) return true;
    if (pattern[i] != '\\') continue;
    if (++i < pattern.size() && (pattern[i] == 'A' || pattern[i] == 'G')) return true;
  }
  return false;
}

}  // namespace

struct PreTokenizer::Compiled {
  Owned<pcre2_code, pcre2_code_free> code;
  bool looks_back = false;  // depends on text before a match
};

PreTokenizer::PreTokenizer(std::string pattern)
    : pattern_(std::move(pattern)), compiled_(std::make_unique<Compiled>()) {
  const std::string expression = pcre2_of_oniguruma(pattern_);
  int error = 0;
  size_t at = 0;
  compiled_->code.reset(pcre2_compile(units(expression), expression.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE,
                                      &error, &at, nullptr));
  if (!compiled_->code) fail("tokenizer: the pattern '", pattern_, "' is invalid: ", message_of(error));
  uint32_t behind = 0;
  pcre2_pattern_info(compiled_->code.get(), PCRE2_INFO_MAXLOOKBEHIND, &behind);
  compiled_->looks_back = behind > 0 || is_anchored(expression);
  pcre2_jit_compile(compiled_->code.get(),
                    PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);  // optional: faster matching
}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

void PreTokenizer::each(std::string_view text, const std::function<void(std::string_view)>& take) const {
  for (size_t at = 0; at < text.size();) {
    const bool valid = character_if_any(text, at).has_value();
    const size_t end = end_of_run(text, at, valid);
    const std::string_view run = text.substr(at, end - at);
    if (valid)
      each_of_valid(run, false, take);
    else
      take(run);
    at = end;
  }
}

// The text may end within a character: neither it nor the run before it is complete then.
size_t PreTokenizer::each_complete(std::string_view text, const std::function<void(std::string_view)>& take) const {
  if (compiled_->looks_back) return 0;  // callers drop processed text, on which matches depend
  const std::string_view whole = text.substr(0, end_of_characters(text));
  for (size_t at = 0; at < whole.size();) {
    const bool valid = character_if_any(whole, at).has_value();
    const size_t end = end_of_run(whole, at, valid);
    const bool last = end == whole.size();
    const std::string_view run = whole.substr(at, end - at);
    if (valid && last) return at + each_of_valid(run, true, take);
    if (last) return at;
    if (valid)
      each_of_valid(run, false, take);
    else
      take(run);
    at = end;
  }
  return whole.size();
}

size_t PreTokenizer::each_of_valid(std::string_view text, bool more,
                                   const std::function<void(std::string_view)>& take) const {
  const Owned<pcre2_match_data, pcre2_match_data_free> matched(
      pcre2_match_data_create_from_pattern(compiled_->code.get(), nullptr));
  if (!matched) throw std::bad_alloc();
  const uint32_t always = PCRE2_NO_UTF_CHECK | (more ? PCRE2_PARTIAL_HARD : 0);
  size_t taken = 0;  // all before it was passed to `take`
  size_t from = 0;   // the next match begins there or later
  const auto emit_up_to = [&](size_t end) {
    if (end > taken) take(text.substr(taken, end - taken));
    taken = end;
  };
  std::optional<size_t> last_end;
  while (from < text.size()) {
    const auto match = [&](uint32_t options) {
      return pcre2_match(compiled_->code.get(), units(text), text.size(), from, always | options, matched.get(),
                         nullptr);
    };
    int found = match(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(PCRE2_NO_JIT);
    if (more && (found == PCRE2_ERROR_PARTIAL || found == PCRE2_ERROR_NOMATCH)) return taken;
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      fail("tokenizer: the pattern '", pattern_, "' cannot be matched at byte ", from, ": ", message_of(found));
    const size_t* const bounds = pcre2_get_ovector_pointer(matched.get());
    // \K can move the beginning of a match before `taken`, or after its end.
    check(bounds[0] >= taken && bounds[1] >= bounds[0], "tokenizer: the pattern '", pattern_,
          "' moves the start of a match; remove \\K");
    if (bounds[0] == bounds[1] && bounds[0] == last_end) {  // an empty match right after a match
      from += character_at(text, from).bytes;
      continue;
    }
    emit_up_to(bounds[0]);
    emit_up_to(bounds[1]);
    from = bounds[1], last_end = bounds[1];
  }
  if (taken < text.size()) take(text.substr(taken));
  return text.size();
}

}  // namespace orrery::models
