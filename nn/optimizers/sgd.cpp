// Stochastic gradient descent with momentum.  Sutskever et al. 2013, PMLR 28; the form is PyTorch's.
//   d = g + decay p,   u <- momentum u + d,   p <- p - rate u         nesterov: p <- p - rate (d + momentum u)
// g is already clipped; vectors and scalars do not decay.
#include "engine/dispatch.h"
#include "nn/optimizer.h"
#include "nn/optimizers/chunks.h"

namespace orrery::nn {
namespace {

template <class T, class Control>
struct Update {
  using A = Arithmetic<T>;
  T *p, *u;
  const T* g;
  const Control* control;
  double momentum, decay, nesterov, lowest, highest;
  int64_t offset = 0;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const A mu = A(momentum), shrink = A(decay), ahead = A(nesterov), clip = A(control->clip_factor),
            rate = A(control->rate);
    const A low = A(lowest), high = A(highest);
    const int64_t first = offset + r * chunk_width;
    const Out<T> to_p{p + first}, to_u{u + first};
    const In<T> from_p{p + first}, from_u{u + first}, from_g{g + first};
    row.each([&](int i) {
      const A d = from_g[i] * clip + shrink * from_p[i], speed = mu * from_u[i] + d;
      const A moved = from_p[i] - rate * (ahead != 0 ? d + mu * speed : speed);
      to_u[i] = speed;
      to_p[i] = moved < low ? low : moved > high ? high : moved;
    });
  }
};

class Sgd final : public Optimizer {
 public:
  struct Settings {
    double momentum = 0.9, decay = 0;
    bool nesterov = false;
    template <class V>
    void visit(V& v) {
      v("momentum", momentum, "share of the last step that is kept", share());
      v("decay", decay, "weight decay of matrices", at_least(0));
      v("nesterov", nesterov, "look ahead along the momentum");
    }
  };
  static inline const Info info{.name = "sgd",
                                .formula = "u = momentum u + g + decay p; p - rate u",
                                .source = "Sutskever et al. 2013, PMLR 28",
                                .parameters = "u 0",
                                .keeps = "u: one number a parameter"};

  Sgd(const Spec& spec, FlatParameters& parameters) : Optimizer(parameters), speed_(parameters.make_moments()) {
    read_settings(spec, settings_);
  }
  std::vector<std::pair<std::string, Tensor>> moments() const override { return {{"momentum", speed_}}; }

 private:
  void update(const Control* control) override {
    const Tensor &p = parameters_.values(), &g = parameters_.gradients();
    dispatch(p.dtype(), "sgd", [&]<class T>() {
      for (const FlatParameters::Run& run : parameters_.runs()) {
        const int64_t b = run.begin;
        update_chunks(p.device(), run.end - b,
                      Update<T, Control>{p.mutable_data<T>() + b, speed_.mutable_data<T>() + b, g.data<T>() + b,
                                         control, settings_.momentum, run.decay ? settings_.decay : 0,
                                         settings_.nesterov ? 1.0 : 0.0, run.lowest, run.highest});
      }
    });
  }

  Settings settings_;
  Tensor speed_;
};
REGISTER_OPTIMIZER(Sgd);

}  // namespace
}  // namespace orrery::nn
