#include "engine/types/ascii.h"

#include <doctest/doctest.h>

using namespace orrery;

TEST_CASE("ascii: digits, letters and lower case do not depend on the locale") {
  CHECK((is_digit('0') && is_digit('9')));
  CHECK(!(is_digit('/') || is_digit(':') || is_digit('\xb2')));  // U+00B2 in Latin-1, superscript two
  CHECK((is_letter('a') && is_letter('z') && is_letter('A') && is_letter('Z')));
  CHECK(!(is_letter('@') || is_letter('[') || is_letter('`') || is_letter('{') || is_letter('\xe9')));
  CHECK((is_letter_or_digit('5') && is_letter_or_digit('x') && !is_letter_or_digit('_')));
  CHECK(lower_case(".JPG\xc9_9") == ".jpg\xc9_9");
}

TEST_CASE("ascii: white space is removed at both ends only") {
  CHECK(trimmed(" \t a b\r\n") == "a b");
  CHECK(trimmed("a") == "a");
  CHECK(trimmed(" \n").empty());
  CHECK(trimmed("").empty());
}
