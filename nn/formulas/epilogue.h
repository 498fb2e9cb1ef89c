// A matrix product with an activation in its epilogue on a GPU, as a role of every activation, for
// dense feed-forwards (nn/feed_forwards/dense.cpp).
#pragma once

#include "engine/matmul/matmul.h"
#if defined(__CUDACC__) || defined(EMULATE_CUDA)
#include "cuda/matmul/activation.cuh"
#include "engine/types/check.h"
#include "nn/formulas/formula.h"
#endif

namespace orrery::nn {

template <class T>
class EpilogueRole {
 public:
  static constexpr const char* role = "matmul";
  template <class F>
  class Of;
  // Computes the product z, and a = F(z), with F's learned parameters p, null without.
  virtual void multiply(const cuda::Matmul<T, T>& product, int bf16_terms, const T* p, T* a) const = 0;
  // Computes dz = F'(z) da from the product da, which is not stored, and a = F(z). F has no parameters.
  virtual void multiply_backward(const cuda::Matmul<T, T>& product, int bf16_terms, const T* z, T* a) const = 0;

 protected:
  ~EpilogueRole() = default;
};

#if defined(__CUDACC__) || defined(EMULATE_CUDA)
template <class F, class T>
struct Loaded {  // F with parameters that a kernel loads
  F f;
  const T* p;
  template <class A>
  HOST_DEVICE auto value(A x) const {
    return bound<Arithmetic<T>>(f, p).value(x);
  }
};

template <class T>
template <class F>
class EpilogueRole<T>::Of : public EpilogueRole<T> {
 public:
  explicit Of(const F& f) : f_(f) {}
  void multiply(const cuda::Matmul<T>& product, int bf16_terms, const T* p, T* a) const override {
    if constexpr (learned_count<F> > 0)
      multiply_with(product, bf16_terms, cuda::Activated<T, Loaded<F, T>>{{f_, p}, a, product.bias});
    else
      multiply_with(product, bf16_terms, cuda::Activated<T, F>{f_, a, product.bias});
  }
  void multiply_backward(const cuda::Matmul<T>& p, int bf16_terms, const T* z, T* a) const override {
    if constexpr (learned_count<F> > 0)
      fail("matmul: the epilogue has no gradients of parameters; compute da first");
    else
      multiply_with(p, bf16_terms, cuda::ActivatedBackward<T, F>{f_, a, z});
  }

 private:
  template <class Epilogue>
  static void multiply_with(const cuda::Matmul<T>& p, int bf16_terms, const Epilogue& epilogue) {
    check(!p.a.transposed && p.b.transposed == Epilogue::b_transposed && p.c[0].columns == p.n && !p.residual,
          "matmul: an activation needs one output and neither a transposed A nor a residual; apply it to the result");
    cuda::multiply_with(p, bf16_terms, epilogue);
  }
  F f_;
};
#endif

}  // namespace orrery::nn
