// Every mutant of a file in one compilation.  tests/mutation.sh writes each term of a backward pass as
// mutant<site>(term); the environment variable ORRERY_MUTANT then chooses, for one run, which site has its sign flipped
// or its term dropped.  It writes each condition of a check as holds<site>(condition) and each argument of its message
// as shown<site>(argument); the chosen condition is true, the chosen argument prints nothing.
#pragma once

#include <ostream>
#include <type_traits>

namespace orrery {

class Tensor;

namespace mutants {

// From ORRERY_MUTANT: 0: none; 1: records reached sites; 2 site: negates it; 2 site + 1: drops it.
extern int active;
constexpr int site_limit = 1 << 20;
extern unsigned char known[site_limit];
extern unsigned char* reached;  // in the file ORRERY_REACHED, if set: programs that a test starts write there too
bool note(int site);            // it exists: some instantiation holds a number or a tensor there
Tensor changed(int site, Tensor x);

template <int site>
struct Site {
  static inline const bool known = note(site);
};

// Returns true if the statement of this site is skipped.
template <int site>
[[gnu::always_inline]] inline bool dropped() {
  (void)Site<site>::known;
  if (active == 1) reached[site] = 1;
  return active >> 1 == site;
}

// The condition of a check, or a part of it.  A test reaches the site if the condition is false there.
template <int site, class X>
bool holds(const X& condition) {
  if (static_cast<bool>(condition)) return true;
  reached[site] = 1;
  return active >> 1 == site;
}

// An argument of a message.  A test reaches the site if the argument is printed.
template <int site, class X>
struct Shown {
  const X& argument;
  friend std::ostream& operator<<(std::ostream& out, const Shown& shown) {
    reached[site] = 1;
    if (active >> 1 != site) out << shown.argument;
    return out;
  }
};
template <int site, class X>
Shown<site, X> shown(const X& argument) {
  return {argument};
}

template <class X>
concept Scalar = std::is_floating_point_v<X>;
template <class X>
concept Vector = !std::is_class_v<X> && !std::is_pointer_v<X> && requires(X x) {
  x + x;
  requires Scalar<std::remove_cvref_t<decltype(x[0])>>;
};
template <class X>
concept Number = Scalar<X> || Vector<X>;

// Returns the term unless this site is active. Indices, pointers and other types pass unchanged.
template <int site, class X>
[[gnu::always_inline]] constexpr auto mutant(X x) {
  if constexpr (Number<X>) {
    if (std::is_constant_evaluated()) return x;
    (void)Site<site>::known;
    const int now = active;
    if (now >> 1 == site) return now & 1 ? X{} : X(-x);
    if (now == 1) reached[site] = 1;
    return x;
  } else if constexpr (std::is_same_v<X, Tensor>) {
    (void)Site<site>::known;
    return active == 1 || active >> 1 == site ? changed(site, x) : x;
  } else if constexpr (requires { x.element; }) {  // an Access that converts to a number
    return mutant<site>(+x);
  } else {
    return x;
  }
}

// An integer literal as a term: the other operand decides if it belongs to a formula or an index.
template <int site>
struct Literal {
  int value;
  template <Scalar X>
  constexpr X as() const {
    return mutant<site>(X(value));
  }
  template <Vector X>
  constexpr X as() const {
    return mutant<site>(X{} + std::remove_cvref_t<decltype(X{}[0])>(value));
  }
  template <class X>
  requires std::is_integral_v<X>
  constexpr X as() const { return X(value); }
  template <class X>
  requires Scalar<X> || std::is_integral_v<X>
  constexpr operator X() const { return as<X>(); }
};
template <int site>
constexpr Literal<site> literal(int value) {
  return {value};
}
template <class X>
concept Operand = Number<X> || std::is_integral_v<X>;
template <int site, Operand X>
constexpr auto operator+(Literal<site> a, X b) {
  return a.template as<X>() + b;
}
template <int site, Operand X>
constexpr auto operator-(Literal<site> a, X b) {
  return a.template as<X>() - b;
}
template <int site, Operand X>
constexpr auto operator+(X a, Literal<site> b) {
  return a + b.template as<X>();
}
template <int site, Operand X>
constexpr auto operator-(X a, Literal<site> b) {
  return a - b.template as<X>();
}

}  // namespace mutants
}  // namespace orrery
