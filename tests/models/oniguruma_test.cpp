// Pre-tokenization by tokenizer.json against the results of the Oniguruma library.
#include <doctest/doctest.h>

#include "models/data/pretokenizer.h"
#include "models/data/tokenizer.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;

namespace {

using Cuts = std::vector<std::string>;

Cuts cuts_of(const std::string& expression, const std::string& text) {
  const PreTokenizer pieces(expression);
  Cuts all;
  const auto take = [&](std::string_view pre_token) { all.emplace_back(pre_token); };
  pieces.each(text, take);
  // Repeats it character by character, taking each pre-token as soon as it is certain.
  Cuts incremental;
  std::string waiting;
  for (const char c : text) {
    waiting += c;
    Cuts some;
    const size_t consumed =
        pieces.each_complete(waiting, [&](std::string_view pre_token) { some.emplace_back(pre_token); });
    if (consumed > 0) incremental.insert(incremental.end(), some.begin(), some.end());
    waiting.erase(0, consumed);
  }
  pieces.each(waiting, [&](std::string_view pre_token) { incremental.emplace_back(pre_token); });
  CHECK(incremental == all);
  return all;
}

}  // namespace

// All expected pre-tokens are from tokenizers 0.23.3.
TEST_CASE("expressions: those of well-known tokenizers split texts as the tokenizers do") {
  const std::string text =
      "In 2024 we\u2019ve 1234567 It'S, don'T!  x\n\n y \r\n caf\u00e9 e\u0301\u3001\u6f22 \u00b2z\t#\n  \n";
  const std::string endings = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
  CHECK(cuts_of(gpt2_pattern, text) ==
        Cuts{"In",     " 2024",   " we", "\u2019", "ve", " 1234567", " It", "'",     "S",          ",",  " don",
             "'",      "T",       "!",   " ",      " x", "\n\n",     " y",  " \r\n", " caf\u00e9", " e", "\u0301\u3001",
             "\u6f22", " \u00b2", "z",   "\t",     "#",  "\n  \n"});
  // The expressions of cl100k_base: as in Llama 3, and as in newer files.
  CHECK(cuts_of(endings + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                text) == Cuts{"In",     " ",  "202",    "4",  " we",   "\u2019ve",   " ",   "123",
                              "456",    "7",  " It",    "'S", ",",     " don",       "'T",  "!",
                              " ",      " x", "\n\n",   " y", " \r\n", " caf\u00e9", " e",  "\u0301\u3001",
                              "\u6f22", " ",  "\u00b2", "z",  "\t",    "#\n",        "  \n"});
  CHECK(cuts_of(R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|)"
                R"(\s*[\r\n]|\s+(?!\S)|\s)",
                text) == Cuts{"In",     " ",    "2024",   " we",   "\u2019ve",   " ",   "1234567",
                              " It",    "'S",   ",",      " don",  "'T",         "!",   " ",
                              " x",     "\n\n", " y",     " \r\n", " caf\u00e9", " e",  "\u0301\u3001",
                              "\u6f22", " ",    "\u00b2", "z",     "\t",         "#\n", "  \n"});
  CHECK(cuts_of(endings + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                text) == Cuts{"In",     " ", "2",      "0",  "2",    "4",   " we",   "\u2019ve",   " ",  "1",
                              "2",      "3", "4",      "5",  "6",    "7",   " It",   "'S",         ",",  " don",
                              "'T",     "!", " ",      " x", "\n\n", " y",  " \r\n", " caf\u00e9", " e", "\u0301\u3001",
                              "\u6f22", " ", "\u00b2", "z",  "\t",   "#\n", "  \n"});
  // The expression of o200k_base.
  const std::string front = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])",
                    rear = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  CHECK(cuts_of(front + "*" + rear + "+" + endings + "?|" + front + "+" + rear + "*" + endings +
                    R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                text) ==
        Cuts{"In", " ",      "202", "4",  " we", "\u2019ve", " ",  "123",   "456",        "7",        " It'S",
             ",",  " don'T", "!",   " ",  " x",  "\n\n",     " y", " \r\n", " caf\u00e9", " e\u0301", "\u3001\u6f22",
             " ",  "\u00b2", "z",   "\t", "#\n", "  \n"});
}

TEST_CASE("expressions: syntax that differs between Oniguruma and PCRE2 is translated") {
  const std::string text = "2024 1 abcABCac DEADbeef\nstra\u00dfe ssK\u017f\n";
  struct Case {
    std::string expression;
    Cuts cuts;
  };
  for (const Case& each : std::vector<Case>{
           {R"(\p{N}{1,3}+)", {"2024", " ", "1", " abcABCac DEADbeef\nstra\u00dfe ssK\u017f\n"}},
           {R"(\p{N}{2}+)", {"2024", " 1 abcABCac DEADbeef\nstra\u00dfe ssK\u017f\n"}},
           {R"(\p{N}{2}?)",
            {"20", "24", " ", "1", " ",  "a", "b", "c", "A", "B",      "C", "a", "c", " ", "D", "E",      "A", "D",
             "b",  "e",  "e", "f", "\n", "s", "t", "r", "a", "\u00df", "e", " ", "s", "s", "K", "\u017f", "\n"}},
           {R"(\p{N}{2,3}?)", {"20", "24", " 1 abcABCac DEADbeef\nstra\u00dfe ssK\u017f\n"}},
           {R"(\p{N}{3}+?)", {"202", "4 1 abcABCac DEADbeef\nstra\u00dfe ssK\u017f\n"}},
           {R"((?:\p{L}\p{L}){2}+)",
            {"2024 1 ", "abcABCac", " ", "DEADbeef", "\n", "stra", "\u00dfe ", "ssK\u017f", "\n"}},
           {"[a-c]{2}+", {"2024 1 ", "ab", "cABC", "ac", " DEADbeef\nstra\u00dfe ssK\u017f\n"}},
           {R"((a|b|\x41){2}+)", {"2024 1 ", "ab", "cABCac DEADbeef\nstra\u00dfe ssK\u017f\n"}},
           {"\u00df{1,2}+", {"2024 1 abcABCac DEADbeef\nstra", "\u00df", "e ssK\u017f\n"}},
           {R"(\h{2}{2})", {"2024", " 1 ", "abcA", "BCac", " ", "DEAD", "beef", "\nstra\u00dfe ssK\u017f\n"}},
           {R"(\p{L}++)", {"2024 1 ", "abcABCac", " ", "DEADbeef", "\n", "stra\u00dfe", " ", "ssK\u017f", "\n"}},
           {R"(\p{L}+?)",
            {"2024 1 ", "a", "b",  "c", "A", "B", "C", "a",      "c", " ", "D", "E", "A", "D",      "b", "e",
             "e",       "f", "\n", "s", "t", "r", "a", "\u00df", "e", " ", "s", "s", "K", "\u017f", "\n"}},
           {R"(\p{N}{,3}\s)",
            {"2", "024 ", "1 ", "abcABCac", " ", "DEADbeef", "\n", "stra\u00dfe", " ", "ssK\u017f", "\n"}},
           {R"(x{,}|{|\w{a|1)", {"2024 ", "1", " abcABCac DEADbeef\nstra\u00dfe ssK\u017f\n"}},
           {R"(^\w+)", {"2024", " 1 abcABCac DEADbeef\n", "stra\u00dfe", " ssK\u017f\n"}},
           {R"(\w+$)", {"2024 1 abcABCac ", "DEADbeef", "\nstra\u00dfe ", "ssK\u017f", "\n"}},
           {R"(\A\w+)", {"2024", " 1 abcABCac DEADbeef\nstra\u00dfe ssK\u017f\n"}},
           {R"(\w+\n\z)", {"2024 1 abcABCac DEADbeef\nstra\u00dfe ", "ssK\u017f\n"}},
           {R"(\w+\Z)", {"2024 1 abcABCac DEADbeef\nstra\u00dfe ", "ssK\u017f", "\n"}},
           {R"(\h+)",
            {"2024", " ", "1", " ", "abcABCac", " ", "DEADbeef", "\nstr", "a", "\u00df", "e", " ssK\u017f\n"}},
           {R"([\hg-t]+)",
            {"2024", " ", "1", " ", "abcABCac", " ", "DEADbeef", "\n", "stra", "\u00df", "e", " ", "ss", "K\u017f\n"}},
           {R"(\H+)",
            {"2024", " ", "1", " ", "abcABCac", " ", "DEADbeef", "\nstr", "a", "\u00df", "e", " ssK\u017f\n"}},
           {R"([^\H]+)",
            {"2024", " ", "1", " ", "abcABCac", " ", "DEADbeef", "\nstr", "a", "\u00df", "e", " ssK\u017f\n"}},
           {R"(\w+)",
            {"2024", " ", "1", " ", "abcABCac", " ", "DEADbeef", "\n", "stra\u00dfe", " ", "ssK\u017f", "\n"}},
           {R"(\b)", {"2024", " ", "1", " ", "abcABCac", " ", "DEADbeef", "\n", "stra\u00dfe", " ", "ssK\u017f", "\n"}},
           {R"(\B)", {"2", "0", "2", "4 1 a", "b",    "c", "A", "B", "C",      "a",   "c D", "E", "A",
                      "D", "b", "e", "e",     "f\ns", "t", "r", "a", "\u00df", "e s", "s",   "K", "\u017f\n"}},
           {"a(?i)b|c", {"2024 1 ", "ab", "cABC", "ac", " DEADbeef\nstra\u00dfe ssK\u017f\n"}},
           {"(?i)B(?-i)C|1", {"2024 1 abcA", "BC", "ac DEADbeef\nstra\u00dfe ssK\u017f\n"}},
           {"(?m:.+)", {"2024 1 abcABCac DEADbeef\nstra\u00dfe ssK\u017f\n"}},
           {".+", {"2024 1 abcABCac DEADbeef", "\n", "stra\u00dfe ssK\u017f", "\n"}},
           {"(?x) [a-c] + # letters (",
            {"2024 1 ", "abc", "ABC", "ac", " DEAD", "b", "eef\nstr", "a", "\u00dfe ssK\u017f\n"}},
           {R"((?#2)\N+)", {"2024 1 abcABCac DEADbeef", "\n", "stra\u00dfe ssK\u017f", "\n"}},
           {"(?i:[s])+", {"2024 1 abcABCac DEADbeef\n", "s", "tra\u00dfe ", "ss", "K", "\u017f", "\n"}},
           {"(?i:k|S)", {"2024 1 abcABCac DEADbeef\n", "s", "tra\u00dfe ", "s", "s", "K", "\u017f", "\n"}},
           {R"((?i:\p{Lu}+))", {"2024 1 abc", "ABC", "ac ", "DEAD", "beef\nstra\u00dfe ss", "K", "\u017f\n"}},
           {R"(\O{5})", {"2024 ", "1 abc", "ABCac", " DEAD", "beef\n", "stra\u00df", "e ssK", "\u017f\n"}},
           {R"(\u00df+|\x41|\o{102})",
            {"2024 1 abc", "A", "B", "Cac DE", "A", "Dbeef\nstra", "\u00df", "e ssK\u017f\n"}},
           {R"(\p{L}*)",
            {"2", "0", "2", "4", " ", "1", " ", "abcABCac", " ", "DEADbeef", "\n", "stra\u00dfe", " ", "ssK\u017f",
             "\n"}},
           {R"((?<n>s)\k<n>)", {"2024 1 abcABCac DEADbeef\nstra\u00dfe ", "ss", "K\u017f\n"}},
           {R"(\'|[\]a]|[]b])",
            {"2024 1 ", "a", "b", "cABC", "a", "c DEAD", "b", "eef\nstr", "a", "\u00dfe ssK\u017f\n"}},
           {"[[:upper:]]+", {"2024 1 abc", "ABC", "ac ", "DEAD", "beef\nstra\u00dfe ss", "K", "\u017f\n"}},
           {R"(\p{^L}+)", {"2024 1 ", "abcABCac", " ", "DEADbeef", "\n", "stra\u00dfe", " ", "ssK\u017f", "\n"}},
       }) {
    CAPTURE(each.expression);
    CHECK(cuts_of(each.expression, text) == each.cuts);
  }
  const std::string signs = "a\u00b2 e\u0301=\u3001\u6f22\x0b\n$5+";
  for (const Case& each : std::vector<Case>{
           {R"(\w+)", {"a\u00b2", " ", "e\u0301", "=\u3001", "\u6f22", "\013\n$", "5", "+"}},
           {R"([\w]+)", {"a", "\u00b2 ", "e\u0301", "=\u3001", "\u6f22", "\013\n$", "5", "+"}},
           {R"(\W+)", {"a\u00b2", " ", "e\u0301", "=\u3001", "\u6f22", "\013\n$", "5", "+"}},
           {R"(\b)", {"a\u00b2", " ", "e\u0301", "=\u3001", "\u6f22", "\013\n$", "5", "+"}},
           {"[[:punct:]]+", {"a\u00b2 e\u0301", "=\u3001", "\u6f22\013\n", "$", "5", "+"}},
           {R"(\p{Han}+)", {"a\u00b2 e\u0301=\u3001", "\u6f22", "\013\n$5+"}},
           {R"(\P{^Han}+)", {"a\u00b2 e\u0301=\u3001", "\u6f22", "\013\n$5+"}},
           {R"(\v+)", {"a\u00b2 e\u0301=\u3001\u6f22", "\013", "\n$5+"}},
           {R"(\s+)", {"a\u00b2", " ", "e\u0301=\u3001\u6f22", "\013\n", "$5+"}},
           {"[[:alpha:]]+", {"a", "\u00b2 ", "e", "\u0301=\u3001", "\u6f22", "\013\n$5+"}},
       }) {
    CAPTURE(each.expression);
    CHECK(cuts_of(each.expression, signs) == each.cuts);
  }
}

TEST_CASE("expressions: the error for syntax that PCRE2 does not support has the offset and a way out") {
  const auto refused = [](const char* expression) {
    return expect_error<TokenizerNotSupported>([&] { PreTokenizer{expression}; }).names(expression);
  };
  for (const char* cut_off : {"\\", "[\\", "[", "(", "(?", "[a-"}) {
    CAPTURE(cut_off);
    expect_error([&] { PreTokenizer{cut_off}; }).names(cut_off);
  }
  refused(R"(\pL+)").value(R"('\pL')").offers(R"(\p{L})");
  refused(R"(\PL)").value(R"('\PL')").offers(R"(\P{L})");
  refused("(?i:strasse)").value("'st'");
  refused("(?i:S(?:s))").value("'ss'");
  refused(R"((?i:s\x53))").value("'ss'");
  refused("(?i)x|(f)i").value("'fi'");
  refused("(?i:\u00df)").value("'\u00df'").offers("ASCII");
  refused("(?i:[\u00df])").value("'\u00df'").offers("ASCII");
  refused(R"((?i:[\p{L}]))").value(R"('\p')").offers("ASCII");
  refused("[a-z&&[^e]]").value("'&&'");
  refused("[[a]b]").value("'[a'").offers(R"(\[)");
  refused(R"(\xe9)").value(R"('\xe9')").offers(R"(\x{e9})");
  refused(R"(\Qa)").value(R"('\Q')");
  refused("(?~a)").value("'(?~'");
  refused("(*FAIL)").value("'(*'");
  expect_error([] { PreTokenizer("a)"); }).names("a)").value("unmatched closing parenthesis");
  expect_error([] { PreTokenizer("[a"); }).names("[a").value("missing terminating ]");
}
