#include "models/inspection/base/answers.h"

#include <algorithm>
#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/types/format.h"
#include "engine/types/usage_error.h"

namespace orrery::models {
namespace {

// Returns the token or class with this name; a token may be given without its first space.
int32_t index_named(const InspectedExample& example, const std::string& setting, const std::string& given,
                    int64_t choices) {
  const std::string name = display_token(given);
  std::vector<std::string> names;
  for (int64_t i = 0; i < choices; ++i) names.push_back(example.target_name(static_cast<int32_t>(i)));
  for (const std::string& form : {given, name, "␣" + name})
    if (const auto found = std::find(names.begin(), names.end(), form); found != names.end())
      return static_cast<int32_t>(found - names.begin());
  const std::string near = nearest(name, names);
  fail_usage("inspect: --", setting, "=", given, " is not the name of one token or class of this model; ",
             near.empty() ? "--analysis=predictions lists the most likely ones" : "did you mean '" + near + "'?");
}

int32_t most_likely_other(std::vector<double> row, int32_t answer) {
  row[static_cast<size_t>(answer)] = -INFINITY;
  return most_likely(row);
}

// Returns the chosen rows.
std::vector<int64_t> rows_of(const Targets& targets, const AnalysisSettings& s) {
  const auto count = static_cast<int64_t>(targets.by_row.size());
  check_usage(s.position < count, "inspect: --position=", s.position,
              " is out of range; positions have numbers from 0 to ", count - 1);
  if (s.position >= 0) return {s.position};
  if (!s.answer.empty() || !s.against.empty()) return {count - 1};
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < count; ++row)
    if (targets.by_row[static_cast<size_t>(row)] >= 0) rows.push_back(row);
  return rows.empty() ? std::vector<int64_t>{count - 1} : rows;
}

std::string quoted_name(const InspectedExample& example, int32_t index) {
  return "'" + example.target_name(index) + "'";
}

}  // namespace

Answers answers_of(const InspectedExample& example, const Tensor& logits, const AnalysisSettings& s) {
  const int64_t choices = logits.size(1);
  check_usage(choices > 1, "inspect: the model has one token or class, so there is no other to set against it");
  const Targets targets = targets_of(example, logits);
  const int32_t answer = s.answer.empty() ? -1 : index_named(example, "answer", s.answer, choices),
                against = s.against.empty() ? -1 : index_named(example, "against", s.against, choices);
  check_usage(answer < 0 || answer != against, "inspect: --answer and --against are both ", s.answer,
              "; choose another --against");
  Answers answers;
  for (const int64_t row : rows_of(targets, s)) {
    const std::vector<double> z = logits[row].to_vector();
    const int32_t target = targets.by_row[static_cast<size_t>(row)];
    Answer at{row, answer >= 0 ? answer : target >= 0 ? target : most_likely(z), against};
    if (answer < 0 && at.answer == against) at.answer = most_likely_other(z, against);
    if (against < 0) at.against = most_likely_other(z, at.answer);
    answers.rows.push_back(at);
  }
  answers.whole_example = logits.size(0) == 1;
  answers.name = targets.described(), answers.against = "the most likely other one";
  if (answers.rows.size() > 1) return answers;
  return last_of(example, answers);
}

Answers last_of(const InspectedExample& example, const Answers& answers) {
  const Answer& last = answers.rows.back();
  return {{last}, quoted_name(example, last.answer), quoted_name(example, last.against), answers.whole_example};
}

Tensor direction(const Answers& answers, const Tensor& logits, double answer, double against) {
  std::vector<double> numbers(static_cast<size_t>(logits.numel()));
  const auto count = static_cast<double>(answers.rows.size());
  for (const Answer& at : answers.rows) {
    double* const row = numbers.data() + at.row * logits.size(1);
    row[at.answer] += answer / count, row[at.against] += against / count;
  }
  return Tensor::from(logits.shape(), numbers, logits.dtype());
}

std::string describe_rows(const Answers& answers) {
  if (answers.whole_example) return "";
  if (answers.rows.size() == 1) return text(" at position ", answers.rows[0].row);
  return text(", as means over ", pluralize(static_cast<int64_t>(answers.rows.size()), "position"));
}

namespace {

// Parameters without gradients, as long as it lives.
class FixedParameters {
 public:
  explicit FixedParameters(nn::Module& model) {
    for (const nn::NamedParameter& p : nn::parameters_of(model))
      if (const Tensor& value = p.parameter->value; value.requires_grad())
        fixed_.push_back(value), value.set_requires_grad(false);
  }
  ~FixedParameters() {
    for (const Tensor& value : fixed_) value.set_requires_grad();
  }
  FixedParameters(const FixedParameters&) = delete;

 private:
  std::vector<Tensor> fixed_;
};

}  // namespace

void run_backward(const InspectedExample& example, const std::function<Tensor(const Tensor& logits)>& of) {
  const FixedParameters fixed(example.model());
  const Tensor logits = example.run_with_graph();
  if (!logits.requires_grad()) return;  // they do not depend on such a tensor
  const int64_t choices = logits.size(-1);
  const Tensor weights = of(to_cpu(logits).reshape(Shape{logits.numel() / choices, choices}));
  backward(logits, weights.reshape(logits.shape()).to(logits.dtype()).to(logits.device()));
}

Tensor gradient_times(const Tensor& leaf, const Tensor& value) {
  const auto exact = [](const Tensor& t) { return t.detach().to(Device::cpu).to(Dtype::f64); };
  const Tensor x = exact(value);
  return leaf.grad() ? exact(leaf.grad()) * x : Tensor::zeros_like(x);
}

}  // namespace orrery::models
