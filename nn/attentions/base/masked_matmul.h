// Products between queries and keys without the masked pairs. A masked pair does not affect the
// product or its gradients: it is skipped, not multiplied by zero, because 0 times NaN is NaN.
//   scores_i = <q_i, k_j> where i sees j, else 0      dq_i = sum over the j that i sees of ds_ij k_j
//                                                     dk_j = sum over the i that see j of ds_ij q_i
//   o_i = sum over the j that i sees of w_ij v_j      dw_ij = <do_i, v_j> where i sees j, else 0
//                                                     dv_j = sum over the i that see j of w_ij do_i
// Each is the gradient of the other. Both run as whole matrix products. Sums replace non-finite
// elements by 0, then add them where visible. Saved for backward: both operands and the mask.
#pragma once

#include "engine/tensor/tensor.h"

namespace orrery::nn {

// (..., Tq, D), (..., Tk, D) -> (..., Tq, Tk); `mask` broadcasts to the scores, 0 where masked
Tensor masked_matmul_transposed(const Tensor& query, const Tensor& key, const Tensor& mask);
// (..., Tq, Tk), (..., Tk, Dv) -> (..., Tq, Dv); `mask` broadcasts to the weights
Tensor masked_matmul(const Tensor& weights, const Tensor& value, const Tensor& mask);

}  // namespace orrery::nn
