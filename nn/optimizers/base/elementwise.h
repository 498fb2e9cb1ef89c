// Elementwise optimizers: an element's step depends only on the element, its gradient and its
// moments. Each optimizer is a formula; this file has the common loop. A formula has
//
//   static constexpr int moments = 2;
//   template <class A> Step<A> step(const Optimizer::StepArguments&, double lr, bool decay) const;
//                                              constants of the step, equal for all elements
//   Step<A>: A operator()(A p, A g, A* moment) const;
//                                              returns the new p, updates the moments; g is clipped
#pragma once

#include <algorithm>
#include <array>

#include "engine/loops/tensor_loops.h"
#include "nn/optimizers/base/optimizer.h"

namespace orrery::nn {

inline constexpr int chunk_width = 4096;  // elements per row; the last row may be shorter

template <class Formula>
struct UpdateElements {
  const Optimizer::StepArguments* arguments;
  Formula formula;
  Optimizer::GroupOptions group_options;
  // bf16_copy: the bf16 copy of p that the model reads, or null
  template <class Row, class T, class... Moment>
  HOST_DEVICE void operator()(Row row, In<T> g, Out<T> p, Out<bf16> bf16_copy, Moment... moments) const {
    using A = Arithmetic<T>;
    if (arguments->skip != 0) return;
    const auto step = formula.template step<A>(*arguments, arguments->lr * group_options.lr_scale, group_options.decay);
    const A clip = A(arguments->clip_factor), low = A(group_options.min_value), high = A(group_options.max_value);
    row.each([&](int i) {
      A m[] = {moments[i]...};
      const A updated = step(p[i], g[i] * clip, m);
      const A* changed = m;
      ((moments[i] = *changed++), ...);
      const A next = updated < low ? low : updated > high ? high : updated;
      p[i] = next;
      if (bf16_copy) bf16_copy[i] = static_cast<float>(next);
    });
  }
};

// Updates those of the elements [begin, end) of the flat buffers that this rank owns; the moments of
// [begin, end) begin at element first_moment.
template <class Formula>
void update_elements(const FlatParameters& flat, int64_t begin, int64_t end,
                     const std::array<Tensor, Formula::moments>& moments, int64_t first_moment,
                     const Optimizer::StepArguments* arguments, const Formula& formula,
                     const Optimizer::GroupOptions& group_options) {
  const int64_t before = std::max<int64_t>(0, flat.mine().begin - begin);
  begin += before, first_moment += before, end = std::min(end, flat.mine().end);
  if (begin >= end) return;
  const UpdateElements<Formula> update{arguments, formula, group_options};
  const auto update_rows = [&]<size_t... K>(int64_t first, const Shape& shape, std::index_sequence<K...>) {
    const auto flat_rows = [&](const Tensor& all, int64_t offset) {
      return all ? Tensor::view(all.impl()->buffer, offset + first, shape, all.dtype()) : Tensor();
    };
    each_row("optimizer", update, row_of(flat_rows(flat.gradients(), begin)), out_row(flat_rows(flat.values(), begin)),
             optional_out_row<bf16>(flat_rows(flat.bf16_copy(), begin)),
             out_row(flat_rows(moments[K], first_moment))...);
  };
  const auto all_moments = std::make_index_sequence<Formula::moments>();
  const int64_t whole_rows = (end - begin) / chunk_width, rest = (end - begin) % chunk_width;
  update_rows(0, Shape{whole_rows, chunk_width}, all_moments);
  if (rest > 0) update_rows(whole_rows * chunk_width, Shape{1, rest}, all_moments);
}

// Optimizer of a formula that also has `info`, `Settings`, a constructor from them, `moment_names`,
// and `corrections(step)` if its step needs them.
template <class Formula>
class ElementwiseOptimizer final : public Optimizer {
 public:
  using Settings = typename Formula::Settings;
  static constexpr const Info& info = Formula::info;

  ElementwiseOptimizer(const Spec& spec, FlatParameters& parameters) : Optimizer(parameters) {
    const auto settings = settings_from<Settings>(spec);
    set_lr_scales(spec.name, settings.lr_scales);
    formula_ = Formula(settings);
    for (Tensor& moment : moments_) moment = parameters.make_moments();
  }
  NamedMoments moments() const override {
    NamedMoments all;
    for (size_t k = 0; k < moments_.size(); ++k)
      for (auto& segment : named_segments(Formula::moment_names[k], moments_[k])) all.push_back(std::move(segment));
    return all;
  }

 private:
  std::pair<double, double> corrections(int64_t step) const override {
    if constexpr (requires { formula_.corrections(step); }) return formula_.corrections(step);
    return {1, 1};
  }
  void update_parameters(const StepArguments* arguments) override {
    for (const FlatParameters::ParamGroup& group : parameters_.groups())
      update_elements(parameters_, group.begin, group.end, moments_, group.begin, arguments, formula_,
                      group_options(group));
  }

  Formula formula_{Settings{}};
  std::array<Tensor, Formula::moments> moments_;
};

}  // namespace orrery::nn
