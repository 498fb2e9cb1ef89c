// Elementwise optimizers: an element's step depends only on the element, its gradient and its
// moments. Each optimizer is a formula; this file has the common loop. A formula has
//
//   static constexpr int moments = 2;
//   template <class A> Step<A> step(const Optimizer::Control&, double rate, bool decay) const;
//                                              constants of the step, equal for all elements
//   Step<A>: A operator()(A p, A g, A* moment) const;
//                                              returns the new p, updates the moments; g is clipped
#pragma once

#include <array>

#include "engine/loops/tensor_loops.h"
#include "nn/optimizers/base/optimizer.h"

namespace orrery::nn {

inline constexpr int chunk_width = 4096;  // elements per row; the last row may be shorter

template <class Formula>
struct UpdateElements {
  const Optimizer::Control* control;
  Formula formula;
  Optimizer::Handling handling;
  // rounded: the bf16 copy of p that the model reads, or null
  template <class Row, class T, class... Moment>
  HOST_DEVICE void operator()(Row row, In<T> g, Out<T> p, Out<bf16> rounded, Moment... moments) const {
    using A = Arithmetic<T>;
    if (control->skip != 0) return;
    const auto step = formula.template step<A>(*control, control->rate * handling.rate_factor, handling.decay);
    const A clip = A(control->clip_factor), low = A(handling.lowest), high = A(handling.highest);
    row.each([&](int i) {
      A m[] = {moments[i]...};
      const A moved = step(p[i], g[i] * clip, m);
      const A* changed = m;
      ((moments[i] = *changed++), ...);
      const A next = moved < low ? low : moved > high ? high : moved;
      p[i] = next;
      if (rounded) rounded[i] = static_cast<float>(next);
    });
  }
};

// Updates elements [begin, end) of the flat tensors; moments[k] starts at element first_moment.
template <class Formula>
void update_elements(const FlatParameters& flat, int64_t begin, int64_t end,
                     const std::array<Tensor, Formula::moments>& moments, int64_t first_moment,
                     const Optimizer::Control* control, const Formula& formula, const Optimizer::Handling& handling) {
  const UpdateElements<Formula> update{control, formula, handling};
  const auto update_rows = [&]<size_t... K>(int64_t first, const Shape& shape, std::index_sequence<K...>) {
    const auto part = [&](const Tensor& all, int64_t offset) {
      return all ? Tensor::view(all.body()->buffer, offset + first, shape, all.dtype()) : Tensor();
    };
    each_row("optimizer", update, row_of(part(flat.gradients(), begin)), to_row(part(flat.values(), begin)),
             to_row_if<bf16>(part(flat.rounded(), begin)), to_row(part(moments[K], first_moment))...);
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
    Settings settings;
    read_settings(spec, settings);
    scale_rates(spec.name, settings.rates);
    formula_ = Formula(settings);
    for (Tensor& moment : moments_) moment = parameters.make_moments();
  }
  NamedMoments moments() const override {
    NamedMoments all;
    for (size_t k = 0; k < moments_.size(); ++k)
      for (auto& part : parts(Formula::moment_names[k], moments_[k])) all.push_back(std::move(part));
    return all;
  }

 private:
  std::pair<double, double> corrections(int64_t step) const override {
    if constexpr (requires { formula_.corrections(step); }) return formula_.corrections(step);
    return {1, 1};
  }
  void update_parameters(const Control* control) override {
    for (const FlatParameters::Run& run : parameters_.runs())
      update_elements(parameters_, run.begin, run.end, moments_, run.begin, control, formula_, handling(run));
  }

  Formula formula_{Settings{}};
  std::array<Tensor, Formula::moments> moments_;
};

}  // namespace orrery::nn
