#include "models/evaluation/probe.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "engine/autograd/autograd.h"
#include "engine/math/random.h"
#include "engine/ops/ops.h"
#include "engine/tensor/finite.h"
#include "engine/types/check.h"
#include "models/evaluation/ridge.h"

namespace orrery::models {
namespace {

constexpr double smallest_deviation = 1e-5, bias_input = 100, fixed_strength = 0x1p10;
constexpr int first_exponent = -10, last_exponent = 19;
constexpr int64_t max_folds = 5;

std::vector<int64_t> count_classes(std::span<const int32_t> labels, size_t classes) {
  std::vector<int64_t> counts(classes);
  for (const int32_t label : labels) ++counts[static_cast<size_t>(label)];
  return counts;
}

// Maps features x to inputs x', by the mean and deviation of the shots.
class Whitening {
 public:
  explicit Whitening(const Tensor& x) : mean_(mean(x, {0}, true)) {
    const Tensor centered = x - broadcast_to(mean_, x.shape());
    deviation_ = shift(sqrt(mean(centered * centered, {0}, true)), smallest_deviation);
  }
  Tensor operator()(const Tensor& x) const {
    const Tensor scaled = (x - broadcast_to(mean_, x.shape())) / broadcast_to(deviation_, x.shape());
    return concatenate({scaled, Tensor::full(Shape{x.size(0), 1}, bias_input, Dtype::f64)}, 1);
  }

 private:
  Tensor mean_, deviation_;  // (1, D)
};

// Ridge regression of the targets on the whitened features of some shots.
class Regression {
 public:
  Regression(const LabelledFeatures& train, int64_t classes)
      : whitening_(train.x), ridge_(whitening_(train.x), targets(train.labels, classes)) {}
  Tensor weights(double strength) const { return ridge_.weights(strength); }
  Tensor inputs(const Tensor& x) const { return whitening_(x); }

 private:
  static Tensor targets(const std::vector<int32_t>& labels, int64_t classes) {
    const Tensor indices = Tensor::from(Shape{static_cast<int64_t>(labels.size())}, labels);
    return shift(scale(one_hot(indices, classes, Dtype::f64), 2), -1);
  }
  Whitening whitening_;
  Ridge ridge_;
};

int64_t count_correct(const Tensor& inputs, const Tensor& weights, const std::vector<int32_t>& labels) {
  const Tensor found = argmax(matmul(inputs, weights));
  return std::inner_product(labels.begin(), labels.end(), found.data<int32_t>(), int64_t{0}, std::plus<>(),
                            std::equal_to<>());
}

double choose_strength(const LabelledFeatures& train, int64_t classes, int64_t shots) {
  const int64_t folds = std::min(max_folds, shots);
  if (folds < 2) return fixed_strength;
  std::vector<int64_t> correct(last_exponent - first_exponent + 1);
  for (int64_t fold = 0; fold < folds; ++fold) {
    std::vector<int32_t> kept, held_out;
    for (int32_t i = 0; i < train.x.size(0); ++i) (i % shots % folds == fold ? held_out : kept).push_back(i);
    const Regression regression(rows_of(train, kept), classes);
    const LabelledFeatures test = rows_of(train, held_out);
    const Tensor inputs = regression.inputs(test.x);
    for (int e = first_exponent; e <= last_exponent; ++e)
      correct[static_cast<size_t>(e - first_exponent)] +=
          count_correct(inputs, regression.weights(std::ldexp(1.0, e)), test.labels);
  }
  const auto last_best = std::max_element(correct.rbegin(), correct.rend());
  return std::ldexp(1.0, last_exponent - static_cast<int>(last_best - correct.rbegin()));
}

}  // namespace

LabelledFeatures rows_of(const LabelledFeatures& from, const std::vector<int32_t>& rows) {
  LabelledFeatures some{index_select(from.x, Tensor::from(Shape{static_cast<int64_t>(rows.size())}, rows)), {}};
  for (const int32_t row : rows) some.labels.push_back(from.labels[static_cast<size_t>(row)]);
  return some;
}

std::vector<int64_t> draw_shots(std::span<const int32_t> labels, int64_t classes, int64_t shots, uint64_t seed) {
  std::vector<std::vector<int64_t>> examples(static_cast<size_t>(classes));
  for (size_t i = 0; i < labels.size(); ++i)
    examples[static_cast<size_t>(labels[i])].push_back(static_cast<int64_t>(i));
  std::vector<int64_t> drawn;
  for (size_t c = 0; c < examples.size(); ++c) {
    std::vector<int64_t>& left = examples[c];
    const RandomKey rng = RandomKey{seed, 0}.derive("few_shot").derive(c);
    for (size_t j = 0; j < static_cast<size_t>(shots); ++j) {  // Fisher and Yates
      std::swap(left[j], left[j + below(rng, j, left.size() - j)]);
      drawn.push_back(left[j]);
    }
  }
  return drawn;
}

void check_shots(const std::string& owner, const std::vector<std::string>& classes, std::span<const int32_t> labels,
                 int64_t shots) {
  const std::vector<int64_t> counts = count_classes(labels, classes.size());
  const auto fewest = std::min_element(counts.begin(), counts.end());
  check(*fewest >= shots, "evaluate: ", owner, " has ", *fewest, " training examples of the class '",
        classes[static_cast<size_t>(fewest - counts.begin())], "', but few_shot=", shots, " takes ", shots,
        " of each class; ", *fewest > 0 ? text("use --few_shot=", *fewest, ", or add examples") : "add examples");
}

FittedProbe fit_probe(const LabelledFeatures& train, const LabelledFeatures& test, int64_t classes, int64_t shots) {
  const NoGrad guard;
  check(all_finite(train.x) && all_finite(test.x),
        "evaluate: the features have NaN or infinity; evaluate another checkpoint, or other features with --features");
  FittedProbe fitted;
  fitted.strength = choose_strength(train, classes, shots);
  const Regression regression(train, classes);
  fitted.weights = regression.weights(fitted.strength);
  fitted.accuracy = static_cast<double>(count_correct(regression.inputs(test.x), fitted.weights, test.labels)) /
                    static_cast<double>(test.labels.size());
  return fitted;
}

}  // namespace orrery::models
