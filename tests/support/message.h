// Checks an expected error by its type and by the setting, the value and the remedy that its
// message contains. The prose may change: tests/golden/messages.txt holds the full text.
//
//   expect_error([] { make_model(7); }).names("heads").value(7).offers("8");      // an orrery::Error
//   expect_error<NonFiniteCheckpointError>(f).names("loss");                    // an error of another type
//   expect_error(run_orrery({"train", "--heads=7"})).names("heads").value(7);     // a program's exit code and stderr
//   Message(outcome.out).names("note").value("relu");                             // any other output
//
// Each term is found as a whole word ("7" is not in "17", "7.5" or "v7"), after the term before it.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/types/ascii.h"
#include "engine/types/check.h"

namespace orrery::testing {

// Returns whether `next` (then `after`) continues a word or, if `number`, a number.
inline bool continues_word(char next, char after, bool number) {
  return is_letter_or_digit(next) || next == '_' || (number && next == '.' && is_digit(after));
}

// Returns the offset of `word` in `text` as a whole word at or after `from`, or npos. Edges of
// `word` other than letters, digits and underscores match anywhere.
inline size_t find_word(std::string_view text, std::string_view word, size_t from = 0) {
  const auto at = [&](size_t i) { return i < text.size() ? text[i] : '\0'; };
  const auto is_word = [](char c) { return continues_word(c, '\0', false); };
  for (size_t i = text.find(word, from); i != text.npos; i = text.find(word, i + 1)) {
    const size_t end = i + word.size();
    const bool before = i > 0 && is_word(word.front()) &&
                        continues_word(text[i - 1], i > 1 ? text[i - 2] : '\0', is_digit(word.front()));
    const bool after = is_word(word.back()) && continues_word(at(end), at(end + 1), is_digit(word.back()));
    if (!before && !after) return i;
  }
  return text.npos;
}

// The message of an error or the output of a program.
class Message {
 public:
  explicit Message(std::string message) : message_(std::move(message)) {}

  // The setting, file, operation or location that is wrong.
  template <class T>
  Message& names(const T& term) {
    return contains("name", text(term));
  }
  // The value that is wrong.
  template <class T>
  Message& value(const T& term) {
    return contains("give the value", text(term));
  }
  // The allowed values, or what the user can do.
  template <class T>
  Message& offers(const T& term) {
    return contains("offer", text(term));
  }

  const std::string& message() const { return message_; }

 private:
  Message& contains(const char* what, const std::string& term) {
    const size_t found = find_word(message_, term, from_);
    const std::string failure = text("the message must ", what, " '", term, "' in '", message_.substr(from_),
                                     "' (whole message: '", message_, "')");
    CHECK_MESSAGE(found != message_.npos, failure);
    if (found != message_.npos) from_ = found + term.size();
    return *this;
  }

  std::string message_;
  size_t from_ = 0;  // end of the last term that was found
};

// Checks that the message is a line of tests/golden/messages.txt under the running test's file,
// with TMP and SOURCES for folders; * stands for text that differs between machines or runs.
// tests/messages.sh rewrites the lines; it keeps lines with a * that match.
void check_golden(const std::string& message);

// Calls f, which must throw a Kind. Returns its message.
template <class Kind = Error, class F>
requires requires(const F& f) { f(); }
Message expect_error(const F& f) {
  try {
    f();
  } catch (const Kind& error) {
    check_golden(error.what());
    return Message(error.what());
  } catch (const std::exception& error) {
    FAIL_CHECK("an error of another type: ", std::string(error.what()));
    return Message(error.what());
  }
  FAIL_CHECK("no error was thrown");
  return Message("no error");
}

// Returns the last error of a program's stderr, which may have progress before it, or all of a
// stderr without an error.
inline std::string error_in(const std::string& err) {
  const size_t begin = err.rfind("orrery: "), end = err.find('\n', begin);
  return begin == err.npos ? err : err.substr(begin, end == err.npos ? err.npos : end + 1 - begin);
}

// Checks the exit code of a program's outcome (tests/examples/program.h), without a code that it is
// an error, 1, or wrong usage, 2. Returns its error.
template <class Outcome>
requires requires(const Outcome& outcome) { outcome.code, outcome.err; }
Message expect_error(const Outcome& outcome, int code = 0) {
  const bool as_expected = code == 0 ? outcome.code == 1 || outcome.code == 2 : outcome.code == code;
  CHECK_MESSAGE(as_expected, "exit code ", outcome.code, " instead of ", code, "; stdout: ", outcome.out,
                "; stderr: ", outcome.err);
  check_golden(error_in(outcome.err));
  return Message(error_in(outcome.err));
}

}  // namespace orrery::testing
