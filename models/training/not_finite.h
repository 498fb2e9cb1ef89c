// Beginnings of error messages of runs that end at a non-finite value. A program that trains in
// subprocesses has only the message, which begins with `train: ` and one of these:
//   train: the loss is not finite at step 12 (loss nan, gradient norm nan); ...
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace orrery::models {

// The step follows each prefix.
inline constexpr std::string_view loss_not_finite = "the loss is not finite at step ",
                                  validation_not_finite = "the validation loss is not finite since step ",
                                  weights_not_finite =
                                      "the weights or the optimizer state are not finite since step ",
                                  value_not_finite = "a value is not finite at step ",
                                  value_not_finite_in_validation =
                                      "a value is not finite in the validation after step ";

// Returns the step of such an error message; nothing for other messages.
inline std::optional<int64_t> step_not_finite(std::string_view message) {
  constexpr std::string_view command = "train: ";
  if (!message.starts_with(command)) return {};
  message.remove_prefix(command.size());
  for (const std::string_view begin : {loss_not_finite, validation_not_finite, weights_not_finite, value_not_finite,
                                       value_not_finite_in_validation}) {
    if (!message.starts_with(begin)) continue;
    int64_t step = 0;
    const char* const digits = message.data() + begin.size();
    if (std::from_chars(digits, message.data() + message.size(), step).ec == std::errc()) return step;
  }
  return {};
}

}  // namespace orrery::models
