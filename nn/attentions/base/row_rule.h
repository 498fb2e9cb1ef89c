// Weights that are found from whole rows of scores, as the ops of sparsemax and entmax15: both (B, H, Tq, Tk).
//   forward:  Rule::Forward<T>{scores, weights}     writes the weights of one row
//   backward: Rule::Backward<T>{weights, dw, ds}    from the weights alone, which is what is kept
// The rule is a type of its file's anonymous namespace.  (Templates of one would not do as arguments: g++ 12 then takes
// the ops of two files for the same.)
#pragma once

#include "engine/autograd/autograd.h"
#include "engine/base/dispatch.h"
#include "engine/loops/loops.h"

namespace orrery::nn {

template <class Rule>
struct RowRule {
  Tensor forward(Saved& saved, const Tensor& s) const {
    const Tensor w = Tensor::empty_like(s);
    dispatch(s.dtype(), Rule::name, [&]<class T>() {
      rows(s.device(), s.numel() / s.size(-1), static_cast<int>(s.size(-1)),
           typename Rule::template Forward<T>{{s.data<T>()}, {w.mutable_data<T>()}});
    });
    saved.save(w);
    return w;
  }
  Gradients<1> backward(const Saved& saved, const Tensor& dw) const {
    const Tensor &w = saved[0], ds = Tensor::empty_like(w);
    dispatch(w.dtype(), Rule::name, [&]<class T>() {
      rows(w.device(), w.numel() / w.size(-1), static_cast<int>(w.size(-1)),
           typename Rule::template Backward<T>{{w.data<T>()}, {dw.data<T>()}, {ds.mutable_data<T>()}});
    });
    return {ds};
  }
};

}  // namespace orrery::nn
