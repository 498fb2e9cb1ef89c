// The source of an activation for orrery try.
#pragma once

#include <string>

// Returns a file that registers x / (1 + x^2) under this name; `derivative` is its formula, of x and
// d = 1 + x^2.
inline std::string activation(const std::string& name, const std::string& derivative) {
  return "#include \"nn/formulas/kernels.h\"\nnamespace {\nstruct Mine {\n"
         "  static inline const orrery::nn::ActivationInfo info{.name = \"" +
         name +
         "\", .formula = \"x / (1 + x^2)\", .source = \"a test\", .limits = {0, 0}};\n"
         "  template <class T> HOST_DEVICE T value(T x) const { return x / (1 + x * x); }\n"
         "  template <class T> HOST_DEVICE T derivative(T x) const { const T d = 1 + x * x; return " +
         derivative + "; }\n};\nREGISTER_ACTIVATION(Mine);\n}  // namespace\n";
}
inline const char* const right_derivative = "(1 - x * x) / (d * d)";
