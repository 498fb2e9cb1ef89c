// Generic operations on tensors. All are differentiable unless a comment excludes it. Broadcasting
// follows NumPy: shapes are aligned at their last axes, and an axis of size 1 is repeated.
#pragma once

#include <span>
#include <vector>

#include "engine/autograd/autograd.h"
#include "engine/loops/tensor_sums.h"
#include "engine/tensor/tensor.h"

namespace orrery {

// ---- arithmetic.cpp: elementwise with broadcasting; operands have one floating dtype and device
Tensor add(const Tensor& a, const Tensor& b);       // (...), (...) -> (...): a + b
Tensor subtract(const Tensor& a, const Tensor& b);  // (...), (...) -> (...): a - b
Tensor multiply(const Tensor& a, const Tensor& b);  // (...), (...) -> (...): a * b
Tensor divide(const Tensor& a, const Tensor& b);    // (...), (...) -> (...): a / b
Tensor maximum(const Tensor& a, const Tensor& b);   // (...), (...) -> (...); where equal, the gradient goes to a
Tensor scale(const Tensor& x, double factor);       // (...) -> (...): factor x
Tensor shift(const Tensor& x, double offset);       // (...) -> (...): x + offset
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return subtract(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return multiply(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return divide(a, b); }
inline Tensor operator*(const Tensor& a, double b) { return scale(a, b); }
inline Tensor operator*(double a, const Tensor& b) { return scale(b, a); }
inline Tensor operator/(const Tensor& a, double b) { return scale(a, 1 / b); }
inline Tensor operator+(const Tensor& a, double b) { return shift(a, b); }
inline Tensor operator-(const Tensor& a, double b) { return shift(a, -b); }
inline Tensor operator-(const Tensor& a) { return scale(a, -1); }

// ---- pointwise.cpp: the elementary functions of reference implementations; no gradient to a condition
Tensor exp(const Tensor& x);                                              // (...) -> (...)
Tensor log(const Tensor& x);                                              // (...) -> (...), natural
Tensor sqrt(const Tensor& x);                                             // (...) -> (...)
Tensor tanh(const Tensor& x);                                             // (...) -> (...)
Tensor erf(const Tensor& x);                                              // (...) -> (...)
Tensor reciprocal(const Tensor& x);                                       // (...) -> (...): 1 / x
Tensor abs(const Tensor& x);                                              // (...) -> (...); derivative 0 at 0
Tensor heaviside(const Tensor& x);                                        // (...) -> (...): 1 if x > 0; gradient 0
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);  // 3 x (...) -> (...): a or, at 0, b

// ---- matmul.cpp: leading axes equal or of one operand
struct Transposed {
  bool a = false, b = false;
};
Tensor matmul(const Tensor& a, const Tensor& b, Transposed transposed = {});  // (..., m, k), (..., k, n) -> (..., m, n)

// ---- reduction.cpp: along any axes; no axes means all. keepdim leaves them with size 1
Tensor sum(const Tensor& x, std::span<const int> axes = {}, bool keepdim = false);   // (...) -> (...) without `axes`
Tensor mean(const Tensor& x, std::span<const int> axes = {}, bool keepdim = false);  // (...) -> (...) without `axes`
Tensor max(const Tensor& x, int axis, bool keepdim = false);  // (...) -> (...); gradient to the first largest element
Tensor argmax(const Tensor& x);                               // (..., C) -> (...) i32; not differentiable
inline Tensor sum(const Tensor& x, std::initializer_list<int> axes, bool keepdim = false) {
  return sum(x, std::span<const int>(axes.begin(), axes.size()), keepdim);
}
inline Tensor mean(const Tensor& x, std::initializer_list<int> axes, bool keepdim = false) {
  return mean(x, std::span<const int>(axes.begin(), axes.size()), keepdim);
}

// ---- layout.cpp: copies, except reshape and slice of Tensor
Tensor permute(const Tensor& x, std::span<const int> order);  // (d_0, d_1, ...) -> (d_order[0], d_order[1], ...)
inline Tensor permute(const Tensor& x, std::initializer_list<int> order) {
  return permute(x, std::span<const int>(order.begin(), order.size()));
}
Tensor transpose(const Tensor& x, int a = -2, int b = -1);            // (..., m, n) -> (..., n, m): swaps two axes
Tensor concatenate(const std::vector<Tensor>& parts, int axis);       // (..., n_i, ...) -> (..., sum n_i, ...)
std::vector<Tensor> split(const Tensor& x, int parts, int axis);      // (..., n, ...) -> (..., n / parts, ...), each
Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end);  // (..., n, ...) -> (..., end - begin, ...)
Tensor broadcast_to(const Tensor& x, const Shape& shape);             // (...) -> `shape`

// ---- indexing.cpp: indices are i32, without a gradient
Tensor index_select(const Tensor& table, const Tensor& indices);  // (V, C), (...) -> (..., C)
// (..., C), (...) -> (rows, C): row v is the sum of the rows of x with index v, in their order: the same bits.
Tensor index_add(const Tensor& x, const Tensor& indices, int64_t rows);
void add_rows_in_place(const Tensor& table, const Tensor& x, const Tensor& indices);  // adds to `table`; not recorded
Tensor gather_last(const Tensor& x, const Tensor& indices);  // (..., C), (...) -> (...): one element of each row
Tensor one_hot(const Tensor& indices, int64_t classes, Dtype dtype = Dtype::f32);  // (...) -> (..., classes)

// ---- cast.cpp
Tensor cast(const Tensor& x, Dtype dtype);    // (...) -> (...); to or from i32: not differentiable
Tensor move(const Tensor& x, Device device);  // (...) -> (...), on another device

}  // namespace orrery
