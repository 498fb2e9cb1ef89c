// Optimizers: one pass over flat buffers that hold all parameters, all gradients and the moments.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/tensor/staging.h"
#include "nn/base/entry.h"
#include "nn/base/module.h"

namespace orrery::nn {

// Moves the parameters and gradients of a module into two flat buffers.  Handles to the parameters stay valid; backward
// writes each gradient into its place.  The parameters that share decay, rate group and bounds lie side by side.
//
// A step is often smaller than the distance of two bf16 numbers and would be lost.  So for parameters of bf16 the
// values that optimizers move, the gradients and the moments are f32, and a third buffer holds what the model reads:
// the values, rounded by each update (mixed precision, Micikevicius et al. 2018, arXiv:1710.03740).  What is copied
// into such a parameter from outside lasts until the next update, unless the values are set too.
class FlatParameters {
 public:
  explicit FlatParameters(Module& module);

  struct Segment {
    std::string path;
    Parameter* parameter;
    int64_t begin, end;  // elements of the flat buffers; the gaps between segments (alignment) stay zero
  };
  struct Part {          // of a segment: one of the tensors that its parameter packs
    int64_t begin, end;  // elements of the flat buffers
    Shape shape;
  };
  static std::vector<Part> parts_of(const Segment& segment);
  struct Run {  // neighbouring segments that are treated alike
    int64_t begin, end;
    bool decay;
    std::string rate_group;
    double rate_factor;
    double lowest, highest;
  };
  const std::vector<Segment>& segments() const { return segments_; }
  const std::vector<Run>& runs() const { return runs_; }
  const Tensor& values() const { return values_; }
  const Tensor& gradients() const { return gradients_; }
  const Tensor& rounded() const { return rounded_; }  // undefined if the model reads the values themselves
  std::vector<std::string> rate_groups() const;       // that parameters belong to, in alphabetical order
  Tensor make_moments() const;                        // zeros of the flat form
  // A segment of a flat tensor, in the parameter's shape.
  Tensor part(const Tensor& flat, const Segment& segment) const;

  void zero_gradients();                     // every gradient counts as zero; the next backward overwrites it
  void settle_gradients();                   // writes zeros where no gradient has arrived since
  void round(const Segment& segment) const;  // values -> rounded, if there is such a buffer

 private:
  std::vector<Segment> segments_;
  std::vector<Run> runs_;
  Tensor values_, gradients_, rounded_;
};

// The setting `learning_rates` of every optimizer: by_group(slopes=0.1, spans=10) multiplies the learning rate of the
// parameters whose rate_group is named; 0 holds them still.
struct GroupRates {
  Spec spec{"equal", {}};
  template <class V>
  void visit(V& v) {
    v("learning_rates|rates", spec, "equal, or by_group(GROUP=FACTOR, ...): factors of the learning rate",
      one_of({"equal", "by_group"}));
  }
};

class Optimizer {
 public:
  // Lies on the device, so that a recorded step can be replayed with other numbers.  Public like the next one, because
  // nvcc wants that of the types that a kernel sees.
  struct Control {
    double rate, clip_factor, first_correction, second_correction;
    double skip;  // not 0: nothing may change
  };
  struct Handling {  // of parameters that are treated alike
    double rate_factor;
    bool decay;
    double lowest, highest;  // after the step the values are brought back between them
  };
  using NamedMoments = std::vector<std::pair<std::string, Tensor>>;

  explicit Optimizer(FlatParameters& parameters);
  virtual ~Optimizer() = default;

  // The global norm of the gradients, summed in f64.
  double gradient_norm();
  // One update.  The gradients are multiplied by min(1, clip / norm); clip 0 means no clipping.  A norm that is not
  // finite changes nothing and returns false.  Returns the norm in *norm if asked.  Waits for the device.
  bool step(double rate, double clip = 0, double* norm = nullptr);

  // The same without waiting, in parts.  request() sends the numbers of the next update to the device; update() queues
  // it, and may be recorded and replayed.  The device itself skips an update whose gradient norm, or whose `loss` (one
  // f64 number, if given), is not finite, and from then on every other: the host learns of it from fetch_outcome(),
  // later, when it has already asked for more.
  struct Outcome {
    double gradient_norm;
    bool done;
  };
  void request(double rate, double clip = 0);
  void update(const Tensor& loss = {});
  size_t fetch_outcome() { return outcomes_.fetch(); }
  Outcome outcome(size_t ticket);

  int64_t steps_done() const { return steps_; }
  void set_steps_done(int64_t steps) { steps_ = steps; }
  // All that the next step depends on beside the parameters and the number of steps: "first_moment.blocks.0..." and its
  // tensor, in the parameter's shape, sharing the optimizer's memory.
  virtual NamedMoments moments() const = 0;
  // The moments, and "master.blocks.0..." if the model reads rounded values: what a checkpoint holds beside the model.
  NamedMoments state() const;
  const FlatParameters& parameters() const { return parameters_; }

 protected:
  virtual void update_parameters(const Control* control) = 0;
  virtual std::pair<double, double> corrections(int64_t step) const;

  // Errors begin with `name`, the optimizer's, and tell the groups there are.
  void scale_rates(const std::string& name, const GroupRates& rates);
  template <class Like>  // a Parameter or a Run
  Handling handling(const Like& like) const {
    return {rate_factor(like.rate_group) * like.rate_factor, like.decay, like.lowest, like.highest};
  }
  // The parts of a flat tensor as moments(): one for each segment.
  NamedMoments parts(const std::string& name, const Tensor& flat) const;

  FlatParameters& parameters_;
  int64_t steps_ = 0;

 private:
  Tensor gradient_square();  // sum of the squares of all gradients, f64
  void forgive();            // what was skipped: the next update is done again

  HostToDevice requests_;
  Tensor control_, outcome_;
  DeviceToHost outcomes_;
  double rate_factor(const std::string& group) const;
  std::map<std::string, double> rate_factors_;  // of groups
};

// A beta of a moving average: 1 - beta must not be 0 in f32.
inline Limits moving_average() { return between(0, 0.9999999); }

using OptimizerEntry = Entry<Optimizer, FlatParameters&>;
Registry<OptimizerEntry>& optimizers();
// "adamw(beta2=0.99, weight_decay=0.1)"
std::unique_ptr<Optimizer> make_optimizer(const Spec& spec, FlatParameters& parameters);

// sum x^2, written to `sum`: one f64 number on the device of x.
void sum_of_squares(const Tensor& x, const Tensor& sum);

#define REGISTER_OPTIMIZER(Type) \
  [[maybe_unused]] static const bool registered_##Type = ::orrery::nn::register_type<Type>(::orrery::nn::optimizers())

}  // namespace orrery::nn
