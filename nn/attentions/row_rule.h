// Weights that are found from whole rows of scores, as the ops of sparsemax and entmax15: both (B, H, Tq, Tk).
//   forward:  Forward<T>{scores, weights}       writes the weights of one row
//   backward: Backward<T>{weights, dw, ds}      from the weights alone, which is what is kept
#pragma once

#include "engine/autograd.h"
#include "engine/dispatch.h"
#include "engine/loops.h"

namespace orrery::nn {

template <template <class> class Forward, template <class> class Backward>
struct RowRule {
  static constexpr const char* name = "weights of rows";
  Tensor forward(Saved& saved, const Tensor& s) const {
    const Tensor w = Tensor::empty_like(s);
    dispatch(s.dtype(), name, [&]<class T>() {
      rows(s.device(), s.count() / s.size(-1), static_cast<int>(s.size(-1)),
           Forward<T>{{s.data<T>()}, {w.mutable_data<T>()}});
    });
    saved.keep(w);
    return w;
  }
  Gradients<1> backward(const Saved& saved, const Tensor& dw) const {
    const Tensor &w = saved[0], ds = Tensor::empty_like(w);
    dispatch(w.dtype(), name, [&]<class T>() {
      rows(w.device(), w.count() / w.size(-1), static_cast<int>(w.size(-1)),
           Backward<T>{{w.data<T>()}, {dw.data<T>()}, {ds.mutable_data<T>()}});
    });
    return {ds};
  }
};

}  // namespace orrery::nn
