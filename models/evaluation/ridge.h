// Ridge regression in closed form: the weights W (D, K) that minimize |X W - Y|^2 + l |W|^2 for
// inputs X (N, D), targets Y (N, K) and a strength l > 0.
//   W = (X^T X + l I)^-1 X^T Y          if N >= D
//   W = X^T (X X^T + l I)^-1 Y          if N < D, the same W: X^T (X X^T + l I) = (X^T X + l I) X^T
// The matrix A is symmetric and positive definite: A = L L^T with a lower triangle L, L_kk > 0,
//   L_kk = sqrt(A_kk - sum_(m<k) L_km^2),   L_ik = (A_ik - sum_(m<k) L_im L_km) / L_kk,   i > k
// and A Z = B is solved by L U = B, then L^T Z = U. All in f64.
// Hoerl and Kennard 1970, Technometrics 12(1); Golub and Van Loan 2013, Matrix Computations, 4.2.
#pragma once

#include "engine/tensor/tensor.h"

namespace orrery::models {

// Returns A^-1 B for a symmetric positive definite A (n, n) and B (n, k), f64 on the CPU. Reads A's
// lower triangle. Throws Error if A is not positive definite.
Tensor solve_positive_definite(const Tensor& a, const Tensor& b);

class Ridge {
 public:
  Ridge(const Tensor& x, const Tensor& y);  // (N, D) and (N, K), f64 on the CPU
  Tensor weights(double strength) const;    // (D, K)

 private:
  bool dual_;                // N < D
  Tensor x_, gram_, right_;  // gram_: X X^T or X^T X; right_: Y or X^T Y
};

}  // namespace orrery::models
