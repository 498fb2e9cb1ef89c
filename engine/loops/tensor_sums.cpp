#include "engine/loops/tensor_sums.h"

#include "engine/loops/loops.h"
#include "engine/types/check.h"
#include "engine/types/dispatch.h"

namespace orrery {
namespace {

void add(const char* operation, const Tensor& to, const Tensor& a, const Tensor& b) {
  check_same_kind(operation, a, b);
  check(a.shape() == b.shape(), operation, ": shapes ", a.shape(), " and ", b.shape(), " must be equal");
  dispatch(to.dtype(), operation, [&]<class T>() {
    map(to.device(), to.numel(), AddValue{}, to.mutable_data<T>(), a.data<T>(), b.data<T>());
  });
}

}  // namespace

Tensor sum_of(const Tensor& a, const Tensor& b) {
  const Tensor sum = Tensor::empty_like(a);
  add("sum_of", sum, a, b);
  return sum;
}

void add_in_place(const Tensor& to, const Tensor& x) { add("add_in_place", to, to, x); }

}  // namespace orrery
