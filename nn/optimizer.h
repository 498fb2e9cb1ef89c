// Optimizers: one pass over flat buffers that hold all parameters, all gradients and the moments.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/entry.h"
#include "nn/module.h"

namespace orrery::nn {

// Moves the parameters and gradients of a module into two flat buffers.  Handles to the parameters stay valid; backward
// writes each gradient into its place.  The parameters that share decay and bounds lie side by side.
class FlatParameters {
 public:
  explicit FlatParameters(Module& module);

  struct Segment {
    std::string path;
    Parameter* parameter;
    int64_t begin, end;  // elements of the flat buffers; the gaps between segments (alignment) stay zero
  };
  struct Run {  // neighbouring segments that are treated alike
    int64_t begin, end;
    bool decay;
    double lowest, highest;
  };
  const std::vector<Segment>& segments() const { return segments_; }
  const std::vector<Run>& runs() const { return runs_; }
  const Tensor& values() const { return values_; }
  const Tensor& gradients() const { return gradients_; }
  Tensor make_moments() const;  // zeros of the flat form
  Tensor part(const Tensor& flat,
              const Segment& segment) const;  // a segment of a flat tensor, in the parameter's shape

  void forget_gradients();  // every gradient counts as zero; the next backward overwrites it
  void settle_gradients();  // writes zeros where no gradient has arrived since

 private:
  std::vector<Segment> segments_;
  std::vector<Run> runs_;
  Tensor values_, gradients_;
};

class Optimizer {
 public:
  // Lies on the device, so that a recorded step can be replayed with other numbers; public, because nvcc wants that of
  // the types that a kernel sees.
  struct Control {
    double rate, clip_factor, first_correction, second_correction;
  };

  explicit Optimizer(FlatParameters& parameters);
  virtual ~Optimizer() = default;

  // The global norm of the gradients, summed in f64.
  double gradient_norm();
  // One update.  The gradients are multiplied by min(1, clip / norm); clip 0 means no clipping.  A norm that is not
  // finite changes nothing and returns false.  Returns the norm in *norm if asked.
  bool step(double rate, double clip = 0, double* norm = nullptr);

  int64_t steps_done() const { return steps_; }
  void set_steps_done(int64_t steps) { steps_ = steps; }
  virtual std::vector<std::pair<std::string, Tensor>> moments() const = 0;  // flat tensors, by name
  const FlatParameters& parameters() const { return parameters_; }

 protected:
  virtual void update(const Control* control) = 0;
  virtual std::pair<double, double> corrections(int64_t step) const;

  FlatParameters& parameters_;
  int64_t steps_ = 0;
  Tensor control_;
};

using OptimizerEntry = Entry<Optimizer, FlatParameters&>;
Registry<OptimizerEntry>& optimizers();
std::unique_ptr<Optimizer> make_optimizer(const Spec& spec,
                                          FlatParameters& parameters);  // "adamw(beta2=0.99, decay=0.1)"

#define REGISTER_OPTIMIZER(Type) \
  [[maybe_unused]] static const bool registered_##Type = ::orrery::nn::register_type<Type>(::orrery::nn::optimizers())

}  // namespace orrery::nn
