// Logit attribution: what each component adds to the logit of an answer, and to that of another one.
//
// A component that adds a to the residual stream adds <g, a> to a logit z, where g is the gradient of z by the stream
// after it, if three things are held fixed (Elhage et al. 2021, transformer-circuits.pub/2021/framework;
// TransformerLens: logit_attrs, with apply_ln_to_stack):
//   the inputs of all sublayers        so g is the direct way from a component to the logit, not by later sublayers
//   the gates of attentions            so an output is linear in the heads' z_h:  sum_h W_o,h (F(x W_g) z_h) + b
//   the divisors of normalizations     N(x) = slope (x - means) + offset, models/inspection/base/normalizations.h
// What remains is affine: gains, divisors, normalizations on the stream (post-norm too), pooling and the head. So
//   z = sum over components of <g, a> + sum over normalizations of <g, offset> + the head's bias,
// and autograd computes each g exactly: one run with a graph in which hooks cut each sublayer's input. A head's part is
// <g_h, z_h>, g_h by its head_output; a unit's is <g_u, value>, by its hidden value. The embedding's part is without
// positions that are added to it. The rest of an attention's output is its bias.
//
// Without a final normalization, and with batch normalization, z(x + d) - z(x) is exactly the part of d. With another
// one it is so only for fixed divisors: to remove a component changes them too (the analysis logit_lens removes it).
// For dynamic normalizations the parts are those of a chord, exact in the sum, and not the first-order effect of d.
// An attention without heads, such as gau, is one component, as is a feed-forward. A component named rest appears if
// the sum differs from the logit by more than rounding in f32, as in bf16, or if an edit changes what the head or a
// normalization on the stream returns.
#include <algorithm>

#include "engine/ops/ops.h"
#include "engine/types/format.h"
#include "models/architectures/headed_model.h"
#include "models/inspection/base/answers.h"
#include "models/inspection/base/head_map.h"
#include "models/inspection/base/normalizations.h"
#include "models/inspection/base/residual_stream.h"
#include "models/inspection/base/units.h"
#include "nn/positions/base/position.h"

namespace orrery::models {
namespace {

// ---- the run that is affine in its parts

struct Part {
  Tensor leaf;   // gets the gradient
  Tensor value;  // what the part adds there
};
using Parts = std::map<std::string, Part>;  // by the name of the hook

Tensor zero_leaf(const Tensor& value) { return Tensor::zeros_like(value).set_requires_grad(); }

struct PositionFinder final : nn::Visitor {
  std::vector<std::string> paths;
  void module(const std::string& path, nn::Module& module) override {
    if (dynamic_cast<const nn::Position*>(&module)) paths.push_back(path);
  }
};

class AffineRun {
 public:
  AffineRun(const InspectedExample& example, const ResidualStream& stream) : example_(example) {
    for (const ResidualState& state : stream.states)
      state.is_embedding() ? open(state.name) : separate_sublayer(state.path);
    PositionFinder positions;
    example.model().visit(positions);
    for (const std::string& path : positions.paths) separate_positions(path);
    for (const NormalizationModule& norm : normalizations_of(example.model())) fix_divisors(norm);
  }
  AffineRun(const AffineRun&) = delete;
  // Returns the parts, with gradients of sum(logits * of(logits)).
  Parts run(const std::function<Tensor(const Tensor& logits)>& of) {
    parts_.clear();
    std::vector<std::string> names;
    for (const auto& [name, replacement] : replacements_) names.push_back(name);
    const Hooks hooks(names, Hooks::Replace{[&](const std::string& name, const Tensor& value) {
                        return replacements_.at(name)(value);
                      }});
    run_backward(example_, of);
    return parts_;
  }

 private:
  void open(const std::string& name) {  // the graph continues to what is inside of the value
    replacements_[name] = [this, name](const Tensor& value) { return value + part(name, value.detach()); };
  }
  void cut(const std::string& name) {
    replacements_[name] = [this, name](const Tensor& value) {
      const Tensor leaf = value.detach().set_requires_grad();
      parts_[name] = {leaf, leaf.detach()};
      return leaf;
    };
  }
  void separate_sublayer(const std::string& path) {
    replacements_[path + ".input"] = [](const Tensor& value) { return value.detach(); };
    cut(path + ".head_output"), cut(path + ".hidden"), open(path + ".output");
  }
  void separate_positions(const std::string& path) {
    keep_input(path);
    replacements_[path + ".output"] = [this, path](const Tensor& value) {
      return value + part(path + ".output", value.detach() - inputs_.at(path).detach());
    };
  }
  // The value stays, and has the gradient of the affine map.
  void fix_divisors(const NormalizationModule& norm) {
    keep_input(norm.path);
    replacements_[norm.path + ".output"] = [this, norm](const Tensor& value) {
      const Tensor& x = inputs_.at(norm.path);
      const FixedNormalization fixed(*norm.module, x.detach());
      const Tensor linear = fixed.linear_part(x);
      return value.detach() + (linear - linear.detach()) + part(norm.path + ".output", fixed.offset());
    };
  }
  void keep_input(const std::string& path) {
    replacements_[path + ".input"] = [this, path](const Tensor& value) {
      inputs_[path] = value;
      return Tensor();
    };
  }
  Tensor part(const std::string& name, const Tensor& value) {
    return (parts_[name] = {zero_leaf(value), value}).leaf;
  }

  const InspectedExample& example_;
  std::map<std::string, std::function<Tensor(const Tensor&)>> replacements_;  // by the name of the hook
  std::map<std::string, Tensor> inputs_;                                      // by path, with their graphs
  Parts parts_;
};

Tensor products_of(const Part& part) { return gradient_times(part.leaf, part.value); }
// Returns the sums over all axes except those of heads, (1, T, H, D); of units, (1, T, N); of slots, (1, H, T, N).
std::vector<double> by_head(const Part& part) { return sum(products_of(part), {0, 1, 3}).to_vector(); }
std::vector<double> by_unit(const Part& part) {
  const Tensor products = products_of(part);
  return (products.shape().rank() == 4 ? sum(products, {0, 2}) : sum(products, {0, 1})).to_vector();
}

// ---- contributions

struct Contribution {
  std::string name;
  double answer = 0, against = 0;
  double difference() const { return answer - against; }
  bool is_zero() const { return answer == 0 && against == 0; }
};
Contribution operator-(const Contribution& a, const Contribution& b) {
  return {a.name, a.answer - b.answer, a.against - b.against};
}
Contribution total_of(const std::string& name, std::span<const Contribution> all) {
  Contribution total{name};
  for (const Contribution& each : all) total.answer += each.answer, total.against += each.against;
  return total;
}
// Returns true if x is larger than rounding, given the sizes of its terms.
bool is_significant(const Contribution& x, std::span<const Contribution> terms) {
  constexpr double rounding = 1e-5;
  double size = 0;
  for (const Contribution& term : terms) size = std::max({size, std::abs(term.answer), std::abs(term.against)});
  return std::max(std::abs(x.answer), std::abs(x.against)) > rounding * size;
}

class Attribution {
 public:
  Attribution(const InspectedExample& example, const ResidualStream& stream, const Tensor& logits,
              const AnalysisSettings& s)
      : answers(answers_of(example, logits, s)) {
    AffineRun run(example, stream);
    of_answer_ = run.run([&](const Tensor& z) { return direction(answers, z, 1, 0); });
    of_against_ = run.run([&](const Tensor& z) { return direction(answers, z, 0, 1); });
    logit = {"logit", sum(logits * direction(answers, logits, 1, 0)).item(),
             sum(logits * direction(answers, logits, 0, 1)).item()};
    add_embedding(example, stream.states[0]);
    for (const ResidualState& state : stream.states)
      if (!state.is_embedding()) add_sublayer(state.path);
    add_biases(example, stream);
    add_units(example);
    const Contribution rest = logit - total_of("", components);
    if (is_significant(rest, components)) components.push_back({"rest", rest.answer, rest.against});
  }

  Answers answers;
  Contribution logit;
  std::vector<Contribution> components, sublayers, units;  // they add up to the logit: the first, and the second
  std::vector<HeadRow> heads;

 private:
  Contribution of_hook(const std::string& label, const std::string& hook) const {
    const auto value = [&](const Parts& parts) {
      const auto found = parts.find(hook);
      return found == parts.end() ? 0 : sum(products_of(found->second)).item();
    };
    return {label, value(of_answer_), value(of_against_)};
  }
  // Returns the contributions of heads or units of one hook value.
  std::vector<Contribution> each_of(const std::string& hook, std::vector<double> (*split)(const Part&),
                                    const std::function<std::string(size_t)>& name) const {
    const auto found = of_answer_.find(hook);
    if (found == of_answer_.end()) return {};
    const std::vector<double> answer = split(found->second), against = split(of_against_.at(hook));
    std::vector<Contribution> all;
    for (size_t i = 0; i < answer.size(); ++i) all.push_back({name(i), answer[i], against[i]});
    return all;
  }
  void add(const Contribution& component) { components.push_back(component), sublayers.push_back(component); }

  void add_embedding(const InspectedExample& example, const ResidualState& embedding) {
    PositionFinder found;
    example.model().visit(found);
    std::vector<Contribution> each;
    for (const std::string& path : found.paths) each.push_back(of_hook(path, path + ".output"));
    const Contribution positions = total_of("positions", each);
    add(of_hook(embedding.path, embedding.name) - positions);
    if (!positions.is_zero()) add(positions);
  }
  void add_sublayer(const std::string& path) {
    sublayers.push_back(of_hook(path, path + ".output"));
    std::vector<Contribution> each =
        each_of(path + ".head_output", by_head, [&](size_t head) { return text(path, " head ", head); });
    if (each.empty()) {
      components.push_back(sublayers.back());
      return;
    }
    heads.push_back({path, {}});
    for (const Contribution& head : each) heads.back().values.push_back(head.difference());
    const Contribution bias = sublayers.back() - total_of("", each);
    if (is_significant(bias, each)) each.push_back({path + " bias", bias.answer, bias.against});
    components.insert(components.end(), each.begin(), each.end());
  }
  void add_biases(const InspectedExample& example, const ResidualStream& stream) {
    for (const NormalizationModule& norm : normalizations_of(example.model())) {
      const bool inside = std::any_of(stream.states.begin(), stream.states.end(), [&](const ResidualState& state) {
        return norm.path.starts_with(state.path + ".");  // a part of the sublayer's output
      });
      const Contribution offset = of_hook(norm.path + " offset", norm.path + ".output");
      if (!inside && !offset.is_zero()) add(offset);
    }
    const auto* const model = dynamic_cast<const HeadedModel*>(&example.model());
    if (!model || !model->head().bias) return;
    const std::vector<double> bias = model->head().bias.to_vector();
    Contribution of_head{"head bias"};
    for (const Answer& at : answers.rows) {
      of_head.answer += bias[static_cast<size_t>(at.answer)] / static_cast<double>(answers.rows.size());
      of_head.against += bias[static_cast<size_t>(at.against)] / static_cast<double>(answers.rows.size());
    }
    add(of_head);
  }
  void add_units(const InspectedExample& example) {
    for (const UnitGroup& group : capture_units(example))
      for (const Contribution& unit : each_of(group.name, by_unit, [&](size_t i) {
             return group.path + " " + group.unit(static_cast<int64_t>(i));
           }))
        units.push_back(unit);
  }

  Parts of_answer_, of_against_;
};

// ---- views

std::vector<std::string> row_of(const Contribution& x) {
  return {x.name, fixed(x.answer, 4), fixed(x.against, 4), signed_fixed(x.difference(), 4)};
}

// Returns the largest |differences|, at most `count`.
std::vector<Contribution> largest_of(std::vector<Contribution> all, int64_t count) {
  std::stable_sort(all.begin(), all.end(), [](const Contribution& a, const Contribution& b) {
    return std::abs(a.difference()) > std::abs(b.difference());
  });
  all.resize(std::min(all.size(), static_cast<size_t>(count)));
  return all;
}

TableView table_of(const Attribution& found, const char* what, std::span<const Contribution> rows) {
  TableView table{{what, found.answers.name, found.answers.against, "difference"}, "lrrr", {}};
  for (const Contribution& each : rows) table.rows.push_back(row_of(each));
  return table;
}

std::string describe(const Attribution& found) {
  return text("the logit of ", found.answers.name, " minus that of ", found.answers.against,
              describe_rows(found.answers));
}

View components_view(const Attribution& found, const AnalysisSettings& s) {
  const auto count = static_cast<int64_t>(found.components.size());
  TableView table = table_of(found, "component", largest_of(found.components, s.top));
  table.rows.push_back(row_of(total_of(text("all ", count), found.components)));
  std::vector<std::pair<std::string, double>> metrics;
  for (const Contribution& each : found.components) {
    std::string name = each.name;
    if (const size_t head = name.find(" head "); head != std::string::npos) name.replace(head, 6, ".");
    std::replace(name.begin(), name.end(), ' ', '.');
    metrics.emplace_back("logit_attribution/difference/" + name, each.difference());
  }
  metrics.emplace_back("logit_attribution/logit_difference", found.logit.difference());
  return {"Logit attribution", "", "Components with the largest contributions",
          text("What each component adds directly to two logits, at the divisors that normalizations have here: ",
               describe(found), ", ", signed_fixed(found.logit.difference(), 4),
               ".  All components add up to the logits."),
          std::move(table), false, std::move(metrics)};
}

void analyze(std::vector<View>& views, const InspectedExample& example, const AnalysisSettings& s) {
  const auto [streams, final_norms, logits] = observe_streams(example);
  if (streams.empty() || logits.size(1) < 2) return;
  const Attribution found(example, streams.back(), logits, s);
  views.push_back(components_view(found, s));
  BarView bars{"logit difference", {}};
  for (const Contribution& each : found.sublayers) bars.bars.push_back({.name = each.name, .value = each.difference()});
  views.push_back({"Logit attribution", "", "Contribution of each sublayer", "To " + describe(found) + ".",
                   std::move(bars)});
  if (!found.heads.empty()) {
    MapView map = head_map("logit difference", found.heads, "no head");
    views.push_back({"Logit attribution", "logit_attribution/heads", "Contribution of each head",
                     "To " + describe(found) + ".", std::move(map)});
  }
  if (found.units.empty()) return;
  views.push_back({"Logit attribution", "", "Units with the largest contributions",
                   "Hidden units of feed-forwards; their sum and the bias are the feed-forward's contribution.",
                   table_of(found, "unit", largest_of(found.units, s.top))});
}

REGISTER_ANALYSIS(logit_attribution,
                  {.name = "logit_attribution",
                   .description = "contribution of the embedding, each head, feed-forward and unit to the logit of "
                                  "an answer and of another one (--answer, --against)",
                   .analyze = analyze});

}  // namespace
}  // namespace orrery::models
