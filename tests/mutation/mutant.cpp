// State of the mutants of a program: the active one, the known and the reached sites.
#include "tests/mutation/mutant.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstdlib>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"

namespace orrery::mutants {

int active = 0;
unsigned char known[site_limit] = {};

namespace {
unsigned char here[site_limit] = {};

[[gnu::constructor(101)]] void read_choice() {  // before all registrations
  const char* const choice = std::getenv("ORRERY_MUTANT");
  active = choice ? std::atoi(choice) : 0;
  if (const char* const path = std::getenv("ORRERY_REACHED")) {
    void* const file = ::mmap(nullptr, site_limit, PROT_READ | PROT_WRITE, MAP_SHARED, ::open(path, O_RDWR), 0);
    if (file != MAP_FAILED) reached = static_cast<unsigned char*>(file);
  }
}
}  // namespace

unsigned char* reached = here;

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
