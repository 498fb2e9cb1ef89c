#include "tests/support/message.h"

#include <doctest/doctest.h>

#include "engine/types/check.h"
#include "tests/support/text.h"

namespace orrery::testing {
namespace {

TEST_CASE("expected errors: a term is found as a whole word only") {
  CHECK(find_word("heads (7) must divide width", "heads") == 0);
  CHECK(find_word("heads (7) must divide width", "7") == 7);
  CHECK(find_word("--heads=7", "--heads") == 0);
  CHECK(find_word("--heads=7", "heads") == 2);
  CHECK(find_word("a 17, then 7", "7") == 11);
  CHECK(find_word("7.5, 0.7 and 7.", "7") == 13);
  CHECK(find_word("n_heads", "heads") == std::string_view::npos);
  CHECK(find_word("headset", "heads") == std::string_view::npos);
  CHECK(find_word("use 8; or 8", "8", 5) == 10);
  CHECK(find_word("in /tmp/a/b.txt", "/tmp/a") == 3);
}

TEST_CASE("expected errors: the terms of a message are found in the order of the calls") {
  expect_error([] { fail("attention: heads (", 7, ") must divide width (", 64, "); use heads=", 8); })
      .names("heads")
      .value(7)
      .names("width")
      .value(64)
      .offers("heads=8");
}

// An error type derived from Error.
struct Special : Error {
  using Error::Error;
};

TEST_CASE("expected errors: a kind is a type") {
  expect_error<Special>([] { throw Special("loss: nan"); }).names("loss").value("nan");
}

TEST_CASE("expected texts: expressions are found anywhere, match all, and give their groups") {
  CHECK(finds("step 12, loss 3", "\\d+"));
  CHECK(!finds("step", "\\d"));
  CHECK(matches("12", "\\d+"));
  CHECK(!matches("step 12", "\\d+"));
  CHECK(match_in("step 12, loss 3", "(\\w+) (\\d+)") == std::vector<std::string>{"step 12", "step", "12"});
  CHECK(match_in("step", "\\d").empty());
  CHECK(matches_in("step 12, loss 3", "\\d+") == std::vector<std::vector<std::string>>{{"12"}, {"3"}});
}

}  // namespace
}  // namespace orrery::testing
