// A linear probe on few labelled examples: how well the features of a model separate the classes of
// other data. The protocol of big_vision's few-shot evaluation:
//   shots    `shots` training examples of each class, drawn anew for each seed; N = shots * classes
//   inputs   x' = [(x - m) / (s + 1e-5); 100], m and s the mean and deviation of each feature over
//            the shots; the constant is large, so that the bias is hardly regularized
//   targets  1 for the class, -1 for the others
//   weights  ridge regression (ridge.h); the prediction is the class of the largest x' W
//   accuracy on all test examples, with the strength l of the highest accuracy on held-out shots:
//            fold f of F = min(5, shots) holds shot j of a class if j mod F = f; each fold is
//            predicted by weights of the others, for l = 2^-10, 2^-9, ..., 2^19; of equally good
//            strengths the largest is taken. One shot leaves nothing to hold out: l = 2^10.
// Source: https://github.com/google-research/big_vision, big_vision/evaluators/fewshot_lsr.py, which
// has l = 2^10 always and no folds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/tensor/tensor.h"

namespace orrery::models {

struct LabelledFeatures {
  Tensor x = {};                     // (n, D) f64 on the CPU
  std::vector<int32_t> labels = {};  // (n)
};

LabelledFeatures rows_of(const LabelledFeatures& from, const std::vector<int32_t>& rows);

struct FittedProbe {
  double strength = 0, accuracy = 0;  // accuracy: fraction of the test examples
  Tensor weights;                     // (D + 1, classes) f64; the last row is the bias divided by 100
};

// Returns indices of `shots` examples of each class, class after class, in the order drawn. Every
// class must have at least as many examples (check_shots).
std::vector<int64_t> draw_shots(std::span<const int32_t> labels, int64_t classes, int64_t shots, uint64_t seed);

// Throws Error if a class has fewer examples than shots; names the class and both numbers.
void check_shots(const std::string& owner, const std::vector<std::string>& classes, std::span<const int32_t> labels,
                 int64_t shots);

// Fits the probe to `shots` examples of each class, in draw_shots' order, and evaluates it.
FittedProbe fit_probe(const LabelledFeatures& train, const LabelledFeatures& test, int64_t classes, int64_t shots);

}  // namespace orrery::models
