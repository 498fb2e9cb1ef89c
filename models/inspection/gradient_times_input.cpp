// Gradient times input: which positions an answer depends on, to first order.
//
//   value of position t = <d f / d e_t, e_t> = sum over channels of gradient times embedding
//   f = ln p of an answer, or the logit of the answer minus that of another one;  e_t: the hook value `embedding`, the
//   input of the first block, positions included
//
// It is d f / d s at s = 1 if e_t is replaced by s e_t (Shrikumar et al. 2017, arXiv:1605.01713; Captum's
// InputXGradient). For an f that is linear in the embeddings the values add up to f(e) - f(0); for another f they do
// not, and where f is flat, as behind a saturated activation, they miss what a large change would do.
// By autograd: f is a function of the logits with df / dlogits = e_answer - p for ln p, e_answer - e_against for the
// difference, and a hook puts a leaf in place of the embedding. A translation has values of its source and its target.
#include <algorithm>
#include <numeric>

#include "engine/ops/ops.h"
#include "engine/types/format.h"
#include "models/inspection/base/answers.h"

namespace orrery::models {
namespace {

struct Objective {
  std::string name;
  double value;
  std::function<Tensor(const Tensor& logits)> gradient;  // by the logits
};

// Returns e_answer - p at the row of the answer, else 0.
Tensor log_probability_gradient(const Answers& answers, const Tensor& logits) {
  const Answer& at = answers.rows[0];
  const Tensor z = logits[at.row].to(Dtype::f64), p = exp(z - max(z, -1, true));
  const Tensor row = p / sum(p, {-1}, true);
  std::vector<double> numbers = direction(answers, logits, 1, 0).to_vector();
  const std::vector<double> probabilities = row.to_vector();
  for (size_t i = 0; i < probabilities.size(); ++i)
    numbers[static_cast<size_t>(at.row) * probabilities.size() + i] -= probabilities[i];
  return Tensor::from(logits.shape(), numbers, logits.dtype());
}

std::vector<Objective> objectives_of(const Answers& answers, const Tensor& logits) {
  const Answer& at = answers.rows[0];
  const std::vector<double> z = logits[at.row].to_vector();
  return {{"ln p of " + answers.name, log_probability(z, at.answer, most_likely(z)),
           [&](const Tensor& values) { return log_probability_gradient(answers, values); }},
          {"logit of " + answers.name + " - " + answers.against,
           z[static_cast<size_t>(at.answer)] - z[static_cast<size_t>(at.against)],
           [&](const Tensor& values) { return direction(answers, values, 1, -1); }}};
}

struct Products {
  std::string path;            // "embedding", "encoder.embedding"
  std::vector<double> values;  // per position
};
// Returns gradient times value of each embedding, summed over channels.
std::vector<Products> products_of(const InspectedExample& example, const Objective& objective) {
  std::vector<std::pair<std::string, Tensor>> leaves;
  const Hooks hooks({"embedding", "*.embedding"}, Hooks::Replace{[&](const std::string& name, const Tensor& value) {
                      leaves.emplace_back(name, value.detach().set_requires_grad());
                      return leaves.back().second;
                    }});
  run_backward(example, objective.gradient);
  std::vector<Products> all;
  for (const auto& [name, leaf] : leaves)
    all.push_back({name, sum(gradient_times(leaf, leaf), {0, 2}).to_vector()});
  return all;
}

View table_of(const InspectedExample& example, std::span<const Objective> objectives,
              std::span<const std::vector<Products>> found, int64_t top) {
  TableView table{{"position", "input", objectives[0].name, objectives[1].name}, "rlrr", {}};
  std::vector<double> sizes;
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < found[0].size(); ++i) {
    const InspectedExample::Labels& labels = example.position_labels(found[0][i].path);
    for (size_t t = 0; t < found[0][i].values.size(); ++t) {
      const double of_p = found[0][i].values[t], of_logits = found[1][i].values[t];
      sizes.push_back(std::abs(of_logits));
      rows.push_back({std::to_string(t), t < labels.size() ? labels[t] : "", signed_fixed(of_p, 4),
                      signed_fixed(of_logits, 4)});
      const std::string& path = found[0][i].path;
      if (found[0].size() > 1) rows.back()[0] = path.substr(0, path.find('.')) + " " + rows.back()[0];
    }
  }
  for (const int32_t i : largest(sizes, top)) table.rows.push_back(rows[static_cast<size_t>(i)]);
  return {"Gradient times input", "", "Positions with the largest values", "", std::move(table)};
}

View map_of(const InspectedExample& example, std::span<const Objective> objectives, const Products& of_p,
            const Products& of_logits, const std::string& caption) {
  MapView map{.quantity = "gradient times input", .rows = {}, .columns = {}, .values = {}, .has_sign = true};
  map.axes = {"of", "position"};
  for (const Objective& objective : objectives) map.rows.push_back(objective.name);
  map.columns = row_labels(example, of_p.path, static_cast<int64_t>(of_p.values.size()));
  std::vector<double> values = of_p.values;
  values.insert(values.end(), of_logits.values.begin(), of_logits.values.end());
  map.values = Tensor::from(Shape{1, 2, static_cast<int64_t>(map.columns.size())}, values, Dtype::f64);
  std::string file = of_p.path;
  std::replace(file.begin(), file.end(), '.', '_');
  return {"Gradient times input", "gradient_times_input/" + file, "Gradient times " + of_p.path, caption,
          std::move(map)};
}

void analyze(std::vector<View>& views, const InspectedExample& example, const AnalysisSettings& s) {
  const Tensor logits = example.run();
  if (logits.size(1) < 2) return;
  const Answers answers = last_of(example, answers_of(example, logits, s));
  const std::vector<Objective> objectives = objectives_of(answers, logits);
  const std::vector<Products> found[] = {products_of(example, objectives[0]), products_of(example, objectives[1])};
  for (size_t i = 0; i < found[0].size(); ++i) {
    std::string sums;
    for (size_t k = 0; k < 2; ++k) {
      const std::vector<double>& values = found[k][i].values;
      sums += text(k > 0 ? "; " : "", objectives[k].name, " is ", signed_fixed(objectives[k].value, 4),
                   ", its values add up to ", signed_fixed(std::accumulate(values.begin(), values.end(), 0.0), 4));
    }
    const std::string caption = text("The derivative", describe_rows(answers),
                                     " by each position's embedding, times this embedding.  Here ", sums, ".");
    views.push_back(map_of(example, objectives, found[0][i], found[1][i], caption));
  }
  if (!found[0].empty()) views.push_back(table_of(example, objectives, found, s.top));
}

REGISTER_ANALYSIS(gradient_times_input,
                  {.name = "gradient_times_input",
                   .description = "derivative of ln p of an answer, and of its logit minus another one's (--answer, "
                                  "--against), by each position's embedding, times the embedding",
                   .analyze = analyze});

}  // namespace
}  // namespace orrery::models
