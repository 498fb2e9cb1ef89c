// Products between queries and keys without the masked pairs. A masked pair does not affect the
// product or its gradients: it is skipped, not multiplied by zero, because 0 times NaN is NaN.
//   s_ij = <q_i, k_j> where j is visible to i, else 0      dq_i = sum over visible j of ds_ij k_j
//                                                          dk_j = sum over i with j visible of ds_ij q_i
//   o_i = sum over visible j of w_ij v_j                   dw_ij = <do_i, v_j> where visible, else 0
//                                                          dv_j = sum over i with j visible of w_ij do_i
// Each is the gradient of the other. Both are computed as whole matrix products. Sums replace
// non-finite elements by 0, then add them where visible. Saved for backward: operands and mask.
#pragma once

#include "engine/tensor/tensor.h"

namespace orrery::nn {

// Returns s: (..., Tq, D), (..., Tk, D) -> (..., Tq, Tk); `mask`, 0 where masked, broadcasts to s.
Tensor masked_matmul_transposed(const Tensor& query, const Tensor& key, const Tensor& mask);
// Returns o: (..., Tq, Tk), (..., Tk, Dv) -> (..., Tq, Dv); `mask` broadcasts to the weights.
Tensor masked_matmul(const Tensor& weights, const Tensor& value, const Tensor& mask);

}  // namespace orrery::nn
