// Optimizers whose step of an element needs that element, its gradient and its moments alone: one formula each, this
// loop for all.  A formula is a value with
//
//   static constexpr int moments = 2;
//   template <class A> Step<A> step(const Optimizer::Control&, double rate, bool decay) const;   what all elements
//   share Step<A>: A operator()(A p, A g, A* moment) const;                  the new p; g is clipped; the moments are
//   changed
#pragma once

#include <array>

#include "engine/base/dispatch.h"
#include "engine/loops/loops.h"
#include "nn/optimizers/base/optimizer.h"

namespace orrery::nn {

inline constexpr int chunk_width = 4096;  // elements of a row; what is left over is a shorter row

template <class T, class Formula>
struct UpdateElements {
  using A = Arithmetic<T>;
  T* p;
  const T* g;
  Outputs<T, Formula::moments> moments;
  const Optimizer::Control* control;
  Formula formula;
  Optimizer::Handling handling;
  Out<bf16> rounded = {};  // null, or a copy of p that the model reads
  int64_t offset = 0;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    if (control->skip != 0) return;
    const auto step = formula.template step<A>(*control, control->rate * handling.rate_factor, handling.decay);
    const A clip = A(control->clip_factor), low = A(handling.lowest), high = A(handling.highest);
    const int64_t first = offset + r * chunk_width;
    const In<T> from_p{p + first}, from_g{g + first};
    const Out<T> to_p{p + first};
    row.each([&](int i) {
      A m[Formula::moments];
      for (int k = 0; k < Formula::moments; ++k) m[k] = detail::load(moments.pointer[k], first + i);
      const A moved = step(from_p[i], from_g[i] * clip, m);
      for (int k = 0; k < Formula::moments; ++k) detail::store(moments.pointer[k], first + i, m[k]);
      const A next = moved < low ? low : moved > high ? high : moved;
      to_p[i] = next;
      if (rounded) rounded[first + i] = static_cast<float>(next);
    });
  }
};

// Elements [begin, end) of flat tensors of one form; moments[k] is read and written from element first_moment on.
template <class Formula>
void update_elements(const FlatParameters& flat, int64_t begin, int64_t end,
                     const std::array<Tensor, Formula::moments>& moments, int64_t first_moment,
                     const Optimizer::Control* control, const Formula& formula, const Optimizer::Handling& handling) {
  const Tensor &p = flat.values(), &g = flat.gradients();
  const int64_t count = end - begin;
  dispatch(p.dtype(), "optimizer", [&]<class T>() {
    Outputs<T, Formula::moments> places;
    for (int k = 0; k < Formula::moments; ++k)
      places.pointer[k] = moments[static_cast<size_t>(k)].template mutable_data<T>() + first_moment;
    UpdateElements<T, Formula> update{
        p.mutable_data<T>() + begin, g.data<T>() + begin, places, control, formula, handling};
    if (flat.rounded()) update.rounded = {flat.rounded().mutable_data<bf16>() + begin};
    rows(p.device(), count / chunk_width, chunk_width, update);
    update.offset = count / chunk_width * chunk_width;
    if (update.offset < count) rows(p.device(), 1, static_cast<int>(count - update.offset), update);
  });
}

// The optimizer of a formula with, besides, `info`, `Settings`, a constructor from them, `moment_names`, and
// `corrections(step)` if its step needs them.
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
