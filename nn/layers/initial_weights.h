// Initial values of a model's weight matrices and tables. Settings:
//   0.02             N(0, 0.02^2); matrices that write to the residual stream N(0, 0.02^2 / (2 layers))
//                                                                           Radford et al. 2019, GPT-2
//   inverse_sqrt_width
//                    as above with std 1 / sqrt(width), so that scores and logits are about 1 at any width
//   normal(0.02)     N(0, 0.02^2) for all; also normal(inverse_sqrt_width)
//   fixup(inverse_sqrt_width)
//                    N(0, std^2 / (2 layers)) in residual branches of two matrices in a row; 0 for the last one and
//                    an untied head; tables N(0, std^2); with residual_gain=learned(1) and biases
//                                                                           Zhang et al. 2019, arXiv:1901.09321
//   relu_revival     normal(0.02): their code replaces the blocks after GPT-2's scaling
//                                                                           Jha and Reagen 2024, arXiv:2410.09637
//   adaptive_span    U(-a, a), a = 1 / sqrt(inputs); tables N(0, 1)         Sukhbaatar et al. 2019, arXiv:1905.07799
//   fan_in           as adaptive_span; PyTorch's default
//   relu_vision      U(-a, a), a = sqrt(6 / (inputs + outputs)); tables N(0, 1 / width), an untied head 0, with
//                    head_bias=-6.9                                         Wortsman et al. 2023, arXiv:2309.08586
//   relu_former      U(-a, a), a = sqrt(6 / (inputs + outputs)); tables N(0, 1 / width); from fairseq, their code base
//                                                                           Shen et al. 2023, arXiv:2302.06461
#pragma once

#include "engine/settings/spec.h"
#include "nn/base/initialization.h"

namespace orrery::nn {

struct InitialWeights {
  enum class Form { normal, fixup, fan_in, xavier } form = Form::normal;
  double std = 0.02;        // for `normal` and `fixup`
  bool same_std = false;    // `normal`: the same std for matrices that write to the residual stream
  double table_std = 0.02;  // for embeddings and learned positions
  bool zero_head = false;

  // Returns values for a matrix within a residual branch; each of `layers` layers has `branches`.
  Initialization hidden(int64_t inputs, int64_t outputs, int64_t layers, int64_t branches = 2) const;
  // Returns values for a matrix whose output is added to the residual stream.
  Initialization residual_output(int64_t inputs, int64_t outputs, int64_t layers, int64_t branches = 2) const;
  Initialization other(int64_t inputs, int64_t outputs) const;  // for a matrix outside of branches
  Initialization head(int64_t inputs, int64_t outputs) const;
  Initialization embedding() const { return normal(table_std); }
};

constexpr const char* initialization_help =  // of the setting `initialization`
    "initial weights: a std, inverse_sqrt_width, normal(STD), fixup(STD), fan_in, adaptive_span, relu_former, "
    "relu_revival or relu_vision";
Limits initialization_names();  // former names of the values, for the setting `initialization`

// Returns the initial values that `spec` sets at this width. Throws with a list of the valid names.
InitialWeights initial_weights(const Spec& spec, int64_t width);

}  // namespace orrery::nn
