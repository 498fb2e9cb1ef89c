#include "examples/orrery/commands/gradient_diagnosis.h"

#include <algorithm>

#include "engine/types/check.h"
#include "engine/types/format.h"

namespace orrery::program {
namespace {

// Finite differences at a kink or with cancellation miss by less than this multiple of their bound;
// it matters only without a reference.
constexpr double max_noise = 1e3;

struct Failure {  // of one input
  const CheckedInput& input;
  bool reference, difference;
  explicit operator bool() const { return reference || difference; }
};
Failure exceeded_by(const CheckedInput& input, const GradientBounds& bounds) {
  return {input, input.reference_error > bounds.reference_error, !(input.difference_error <= bounds.difference_error)};
}

std::string excess(const std::string& name, const std::string& against, double error, double bound) {
  return text(name, ": error against ", against, " ", scientific(error), " is ", scientific(error / bound),
              " times the bound ", scientific(bound));
}

// The rules, the first that applies.
std::string cause_of(const Failure& failure, const GradientBounds& bounds) {
  const CheckedInput& input = failure.input;
  const bool has_reference = !std::isnan(input.reference_error);
  if (std::isinf(input.difference_error) || std::isinf(input.reference_error))
    return "the derivative is NaN or infinite, or has another size than the input";
  if (failure.difference && std::abs(input.factor) < 1e-6) return "the derivative is 0 everywhere: it is missing";
  if (failure.difference && std::abs(input.factor - 1) > 1e-6)
    return "the derivative is " + significant(input.factor, 6) +
           " times the finite difference everywhere: a wrong factor";
  if (failure.reference && failure.difference) return "a wrong or missing term";
  if (failure.reference) return "rounding: a constant with too few digits, or values or sums in f32 instead of f64";
  if (has_reference)
    return "a kink at the worst element, or cancellation in the finite difference, because the derivative agrees with "
           "the " +
           bounds.reference + "; list the kink, or try another --seed";
  return input.difference_error <= max_noise * bounds.difference_error
             ? "a kink near the worst element, or cancellation in the finite difference; try another --seed"
             : "a wrong or missing term, or a kink at the worst element";
}

// Returns how the failures are spread over the inputs; empty: it points to nothing.
std::string spread_text(const std::vector<Failure>& failures, size_t inputs) {
  if (inputs < 2) return "";
  if (failures.size() == 1)
    return "only " + failures[0].input.name + " fails: the error is in its own gradient, not in what all share";
  return failures.size() == inputs ? "all inputs fail: the error is in what their gradients share" : "";
}

}  // namespace

std::vector<std::string> diagnose(const std::vector<CheckedInput>& inputs, const GradientBounds& bounds,
                                  double value_error) {
  std::vector<std::string> lines, causes;
  std::vector<Failure> failures;
  if (!(value_error <= bounds.reference_error)) {
    lines.push_back(excess("(result)", bounds.reference, value_error, bounds.reference_error));
    causes.push_back("forward and the " + bounds.reference + " differ: correct one of them before the derivatives");
  }
  for (const CheckedInput& input : inputs) {
    const Failure failure = exceeded_by(input, bounds);
    if (failure.reference)
      lines.push_back(excess(input.name, bounds.reference, input.reference_error, bounds.reference_error));
    if (failure.difference)
      lines.push_back(excess(input.name, "finite difference", input.difference_error, bounds.difference_error));
    if (!failure) continue;
    failures.push_back(failure);
    causes.push_back(input.name + ": " + cause_of(failure, bounds));
  }
  if (const std::string spread = spread_text(failures, inputs.size()); !spread.empty()) causes.push_back(spread);
  for (const std::string& cause : causes) lines.push_back("likely cause: " + cause);
  return lines;
}

}  // namespace orrery::program
