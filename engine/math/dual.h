// A formula on dual numbers (value, derivative in one direction) gives its exact derivative in f64,
//   f(x + h e) = f(x) + f'(x) h e   with e^2 = 0,
// an independent check of derivatives that are written by hand. Include it before the formulas:
// they find these overloads by their qualified names.
#pragma once

#include "engine/math/scalar.h"
#include "engine/types/host_device.h"

namespace orrery {

struct Dual {
  double value = 0;
  double derivative = 0;

  Dual() = default;
  HOST_DEVICE Dual(double v, double s = 0) : value(v), derivative(s) {}

  HOST_DEVICE Dual& operator+=(Dual b) { return *this = {value + b.value, derivative + b.derivative}; }
  HOST_DEVICE Dual& operator-=(Dual b) { return *this = {value - b.value, derivative - b.derivative}; }
  HOST_DEVICE Dual& operator*=(Dual b) {
    return *this = {value * b.value, derivative * b.value + value * b.derivative};
  }
  HOST_DEVICE Dual& operator/=(Dual b) {
    const double quotient = value / b.value;
    return *this = {quotient, (derivative - quotient * b.derivative) / b.value};
  }
  HOST_DEVICE friend Dual operator+(Dual a, Dual b) { return a += b; }
  HOST_DEVICE friend Dual operator-(Dual a, Dual b) { return a -= b; }
  HOST_DEVICE friend Dual operator*(Dual a, Dual b) { return a *= b; }
  HOST_DEVICE friend Dual operator/(Dual a, Dual b) { return a /= b; }
  HOST_DEVICE friend Dual operator-(Dual a) { return {-a.value, -a.derivative}; }

  // Comparisons use the value; the derivative is that of the branch taken.
  HOST_DEVICE friend bool operator<(Dual a, Dual b) { return a.value < b.value; }
  HOST_DEVICE friend bool operator>(Dual a, Dual b) { return a.value > b.value; }
  HOST_DEVICE friend bool operator<=(Dual a, Dual b) { return a.value <= b.value; }
  HOST_DEVICE friend bool operator>=(Dual a, Dual b) { return a.value >= b.value; }
  HOST_DEVICE friend bool operator==(Dual a, Dual b) { return a.value == b.value; }
};

namespace scalar {

// The derivative at 0 is 0, but NaN if that of x is infinite or NaN.
HOST_DEVICE inline Dual abs(Dual x) { return x.value < 0 ? -x : x.value > 0 ? x : Dual(x.value, 0 * x.derivative); }
HOST_DEVICE inline Dual sqrt(Dual x) {
  const double root = sqrt(x.value);
  return {root, x.derivative / (2 * root)};
}
HOST_DEVICE inline Dual exp(Dual x) {
  const double e = exp(x.value);
  return {e, e * x.derivative};
}
HOST_DEVICE inline Dual expm1(Dual x) { return {expm1(x.value), exp(x.value) * x.derivative}; }
HOST_DEVICE inline Dual log(Dual x) { return {log(x.value), x.derivative / x.value}; }
HOST_DEVICE inline Dual log1p(Dual x) { return {log1p(x.value), x.derivative / (1 + x.value)}; }
HOST_DEVICE inline Dual tanh(Dual x) {  // 1 - tanh^2 = 4 s (1 - s) with s = sigmoid(2 x), without cancellation
  return {tanh(x.value), 4 * sigmoid(2 * x.value) * sigmoid(-2 * x.value) * x.derivative};
}
HOST_DEVICE inline Dual sigmoid(Dual x) {
  return {sigmoid(x.value), sigmoid(x.value) * sigmoid(-x.value) * x.derivative};
}
HOST_DEVICE inline Dual softplus(Dual x) { return {softplus(x.value), sigmoid(x.value) * x.derivative}; }
HOST_DEVICE inline Dual erf(Dual x) {  // derivative: 2 / sqrt(pi) exp(-x^2) = 2 sqrt(2) normal_density(sqrt(2) x)
  return {erf(x.value), 2.8284271247461900976 * normal_density(1.4142135623730950488 * x.value) * x.derivative};
}
HOST_DEVICE inline Dual normal_density(Dual x) {  // the PDF of N(0, 1)
  const double density = normal_density(x.value);
  return {density, -x.value * density * x.derivative};
}
HOST_DEVICE inline Dual normal_distribution(Dual x) {  // the CDF of N(0, 1)
  return {normal_distribution(x.value), normal_density(x.value) * x.derivative};
}
HOST_DEVICE inline Dual sin(Dual x) { return {sin(x.value), cos(x.value) * x.derivative}; }
HOST_DEVICE inline Dual cos(Dual x) { return {cos(x.value), -sin(x.value) * x.derivative}; }
HOST_DEVICE inline Dual atan(Dual x) { return {atan(x.value), x.derivative / (1 + x.value * x.value)}; }

}  // namespace scalar
}  // namespace orrery
