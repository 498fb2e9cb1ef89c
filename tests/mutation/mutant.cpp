// State of the mutants of a program: the active one, the known and the reached sites.
#include "tests/mutation/mutant.h"

#include <cstdlib>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"

namespace orrery::mutants {

int active = 0;
unsigned char reached[site_limit] = {};
unsigned char known[site_limit] = {};

namespace {
[[gnu::constructor(101)]] void read_choice() {  // before all registrations
  const char* const choice = std::getenv("ORRERY_MUTANT");
  active = choice ? std::atoi(choice) : 0;
}
}  // namespace

bool note(int site) {
  known[site] = 1;
  return true;
}

// Undefined gradients and tensors of indices are not terms.
Tensor changed(int site, Tensor x) {
  if (!x || !is_floating(x.dtype())) return x;
  if (active == 1) {
    reached[site] = 1;
    return x;
  }
  const NoGrad guard;
  return active & 1 ? Tensor::zeros_like(x) : scale(x, -1);
}

}  // namespace orrery::mutants
