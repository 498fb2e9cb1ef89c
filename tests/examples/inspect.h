// Calls of orrery inspect.
#pragma once

#include "tests/examples/training.h"
#include "tests/support/message.h"

inline Outcome inspect(const std::vector<std::string>& words) {
  Outcome outcome = run_orrery(std::vector<std::string>{"inspect"} + words);
  INFO(outcome.err);
  CHECK(outcome.code == 0);
  return outcome;
}
inline orrery::testing::Message refusal(const std::vector<std::string>& words) {
  return orrery::testing::expect_error(run_orrery(std::vector<std::string>{"inspect"} + words));
}
