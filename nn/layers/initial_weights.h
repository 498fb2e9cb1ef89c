// How the weight matrices and tables of a model start.  As text:
//   0.02             N(0, 0.02^2); those whose output joins the residual stream N(0, 0.02^2 / (2 layers))
//                                                                           Radford et al. 2019, GPT-2
//   by_width         the same from 1 / sqrt(width), which gives scores and logits of about 1 at any width
//   equal(0.02)      N(0, 0.02^2) for all; also equal(by_width)
//   fixup(by_width)  N(0, std^2 / (2 layers)) in residual branches of two matrices in a row, whose last one and a head
//                    of its own start at 0, tables N(0, std^2); with residual_gain=learned(1) and biases
//                                                                           Zhang et al. 2019, arXiv:1901.09321
//   relu_revival     equal(0.02): their blocks are made anew after GPT-2's shrinking
//                                                                           Jha and Reagen 2024, arXiv:2410.09637
//   adaptive_span    U(-a, a), a = 1 / sqrt(inputs); tables N(0, 1)         Sukhbaatar et al. 2019, arXiv:1905.07799
//   by_inputs        the same, PyTorch's own
//   relu_vision      U(-a, a), a = sqrt(6 / (inputs + outputs)); tables N(0, 1 / width), a head of its own 0, with
//                    head_bias=-6.9                                         Wortsman et al. 2023, arXiv:2309.08586
//   relu_former      U(-a, a), a = sqrt(6 / (inputs + outputs)); tables N(0, 1 / width), fairseq's, on which they build
//                                                                           Shen et al. 2023, arXiv:2302.06461
#pragma once

#include "engine/settings/spec.h"
#include "nn/base/initialization.h"

namespace orrery::nn {

struct InitialWeights {
  enum class Form { normal, fixup, by_inputs, xavier } form = Form::normal;
  double std = 0.02;        // of `normal` and `fixup`
  bool equal = false;       // of `normal`: no smaller for what joins the residual stream
  double table_std = 0.02;  // of embeddings and learned positions
  bool zero_head = false;

  // Of a matrix within a branch of a model of so many layers, each of so many branches.
  Initialization inner(int64_t inputs, int64_t outputs, int64_t layers, int64_t branches = 2) const;
  // Of a matrix whose output is added to the residual stream of such a model.
  Initialization joining(int64_t inputs, int64_t outputs, int64_t layers, int64_t branches = 2) const;
  Initialization outside(int64_t inputs, int64_t outputs) const;  // of a matrix that stands in no branch
  Initialization head(int64_t inputs, int64_t outputs) const;
  Initialization table() const { return normal(table_std); }
};

// What the text says of a model of that width; an Error that names the words that there are.
InitialWeights initial_weights(const Spec& spec, int64_t width);

}  // namespace orrery::nn
