// Problems with generated sequences, which test what a model can learn. A problem is one file with
// a class that has
//   static inline const nn::Info info{.name = ..., .formula = ..., .source = ...};
//   struct Settings { ... visit ... };
//   explicit Type(const Spec& spec);
// and one line, REGISTER_PROBLEM(Type).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/math/random.h"
#include "nn/base/entry.h"

namespace orrery::models {

class Problem {
 public:
  virtual ~Problem() = default;
  virtual int64_t vocabulary() const = 0;  // tokens are 0, 1, ..., vocabulary - 1
  virtual int64_t length() const = 0;      // tokens, equal for all sequences
  // Writes the sequence of an rng key: `inputs` and, where the model must answer, `targets`, each
  // of `length` tokens. The targets are no_target before the call.
  virtual void write(RandomKey rng, std::span<int32_t> inputs, std::span<int32_t> targets) const = 0;
};
constexpr int32_t no_target = -1;  // ignored by losses

using ProblemEntry = nn::Entry<Problem>;
Registry<ProblemEntry>& problems();
std::unique_ptr<Problem> make_problem(const Spec& spec);  // "copy(length=32)"

// Random numbers, drawn one by one from an rng key.
class Draws {
 public:
  explicit Draws(RandomKey rng) : rng_(rng) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(orrery::below(rng_, drawn_++, static_cast<uint64_t>(n))); }
  int32_t token(int64_t n) { return static_cast<int32_t>(below(n)); }

 private:
  RandomKey rng_;
  uint64_t drawn_ = 0;
};

#define REGISTER_PROBLEM(Type) \
  [[maybe_unused]] static const bool registered_##Type = ::orrery::nn::register_type<Type>(::orrery::models::problems())

}  // namespace orrery::models
