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
#include "nn/optimizers/base/square_sums.h"

namespace orrery::nn {

// Moves the parameters and gradients of a module into two flat buffers. Handles stay valid;
// backward writes into the flat buffer. Parameters with equal options are adjacent.
//
// Steps are often smaller than the spacing of bf16 numbers and would be lost. So bf16 parameters
// have f32 master weights (`values`), gradients and moments, and each update rounds a bf16 copy for
// the model (mixed precision, Micikevicius et al. 2018, arXiv:1710.03740). The next update
// overwrites a value copied into such a parameter, unless `values` is set too.
class FlatParameters {
 public:
  explicit FlatParameters(Module& module);

  struct Segment {
    std::string path;
    Parameter* parameter;
    int64_t begin, end;  // elements [begin, end) of the flat buffers; gaps between segments (alignment) stay zero
  };
  struct PackedTensor {  // one of the tensors that are packed in a parameter
    int64_t begin, end;  // elements [begin, end) of the flat buffers
    Shape shape;
  };
  static std::vector<PackedTensor> packed_tensors_of(const Segment& segment);
  struct ParamGroup {  // adjacent segments with equal options
    int64_t begin, end;  // elements [begin, end) of the flat buffers
    bool decay;
    std::string lr_group;
    double lr_scale;
    double min_value, max_value;
  };
  const std::vector<Segment>& segments() const { return segments_; }
  const std::vector<ParamGroup>& groups() const { return groups_; }
  const Tensor& values() const { return values_; }
  const Tensor& gradients() const { return gradients_; }
  const Tensor& bf16_copy() const { return bf16_copy_; }  // undefined if the model reads `values`
  std::vector<std::string> lr_groups() const;             // in alphabetical order
  Tensor make_moments() const;                            // zeros, shaped like the flat buffers
  // Returns a view of a segment of a flat tensor, in the parameter's shape.
  Tensor segment_view(const Tensor& flat, const Segment& segment) const;

  void zero_gradients();                     // marks every gradient as zero; the next backward overwrites it
  void write_pending_zeros();                // writes zeros where backward has not written a gradient since
  void round(const Segment& segment) const;  // copies `values` to `bf16_copy`, if defined

  // Each of several ranks updates the elements that it owns; null: this process updates all.
  void set_owners(const Owners* owners) { owners_ = owners; }
  const Owners* owners() const { return owners_; }
  IndexRange mine() const { return owners_ ? owners_->mine() : IndexRange{0, values_.numel()}; }

 private:
  std::vector<Segment> segments_;
  std::vector<ParamGroup> groups_;
  Tensor values_, gradients_, bf16_copy_;
  const Owners* owners_ = nullptr;
};

// The setting `lr_scales` of every optimizer: groups(slopes=0.1, spans=10) multiplies the
// learning rate of parameters by the factor of their lr_group; 0 freezes them. `train` has another
// setting of this name, whose factors belong to patterns of parameter paths.
struct GroupLearningRates {
  Spec spec{"none", {}};
  template <class V>
  void visit(V& v) {
    v("lr_scales|learning_rates|rates", spec, "learning rate factors by group: none, or groups(GROUP=FACTOR, ...)",
      one_of({"none|equal", "groups|by_group"}));
  }
};

class Optimizer {
 public:
  // StepArguments are in device memory, so that a captured CUDA graph can be replayed with other
  // values. These types are public, because nvcc requires public types in kernel arguments.
  struct StepArguments {
    double lr, clip_factor, first_correction, second_correction;  // of this step; gradients are times clip_factor
    double skip;                                                  // not 0: the update changes nothing
  };
  struct GroupOptions {  // options of a parameter group
    double lr_scale;
    bool decay;
    double min_value, max_value;  // values are clamped to [min_value, max_value] after the step
  };
  using NamedMoments = std::vector<std::pair<std::string, Tensor>>;

  explicit Optimizer(FlatParameters& parameters);
  virtual ~Optimizer() = default;

  // Returns the global norm of the gradients, summed in f64.
  double gradient_norm();
  // Does one update, with gradients multiplied by min(1, clip / norm) if clip > 0, and waits for
  // it. Sets *norm if given. Returns false, without an update, if the norm is not finite.
  bool step(double lr, double clip = 0, double* norm = nullptr);

  // A step without waiting, in four calls. send_request() sends lr and clip of the next update to
  // the device. update() queues it and may be captured and replayed. If the norm or `loss` (one f64
  // number, optional) is not finite, the device skips this and all later updates. fetch_status()
  // queues a copy for the host; status(ticket) waits for it; more updates may be queued before.
  struct StepStatus {
    double gradient_norm;
    bool done;  // false: this update or an earlier one was skipped
  };
  void send_request(double lr, double clip = 0);
  void update(const Tensor& loss = {});
  size_t fetch_status() { return status_copies_.fetch(); }
  StepStatus status(size_t ticket);

  int64_t steps_done() const { return steps_; }
  void set_steps_done(int64_t steps) { steps_ = steps; }
  // Returns the state that the next step needs besides the parameters and the step number. Tensors
  // ("first_moment.blocks.0...") have the parameter's shape and share the optimizer's memory.
  virtual NamedMoments moments() const = 0;
  // Returns moments() and any master weights ("master.blocks.0..."), for a checkpoint.
  NamedMoments state() const;
  const FlatParameters& parameters() const { return parameters_; }

  // With FlatParameters::set_owners, an update changes the elements of this rank, then all ranks get
  // all values. Each rank has the state of its elements: move_state completes it on rank 0, or gives
  // every rank its part of rank 0's; forget_others frees the memory of the rest.
  // Returns the elements of each of `count` ranks, about equally many.
  std::vector<IndexRange> shares(int64_t count) const;
  void move_state(bool to_first) const;
  void forget_others() const;

 protected:
  // Returns the position next to `element`, not after it, where elements of two ranks may meet.
  virtual int64_t cut_before(int64_t element) const { return element / 16 * 16; }
  virtual void update_parameters(const StepArguments* arguments) = 0;
  virtual std::pair<double, double> corrections(int64_t step) const;  // Adam's 1 - beta^step; default: 1, 1

  // Sets lr factors. Error messages start with the optimizer's `name` and list the lr groups.
  void set_lr_scales(const std::string& name, const GroupLearningRates& lr_scales);
  template <class Like>  // a Parameter or a ParamGroup
  GroupOptions group_options(const Like& like) const {
    return {lr_scale(like.lr_group) * like.lr_scale, like.decay, like.min_value, like.max_value};
  }
  // Returns the segments of a flat tensor, named as in moments().
  NamedMoments named_segments(const std::string& name, const Tensor& flat) const;

  FlatParameters& parameters_;
  int64_t steps_ = 0;

 private:
  const Tensor& gradient_square();  // sum of the squares of all gradients, f64 (1)
  void clear_skip();                // the next update runs again
  int64_t begin_of(const std::string& moment) const;  // first element of its parameter, by its name in state()

  SquareSums gradient_squares_;  // over the whole gradients
  HostToDevice requests_;
  Tensor arguments_, status_;
  DeviceToHost status_copies_;
  double lr_scale(const std::string& group) const;
  std::map<std::string, double> lr_scales_;  // by lr group
};

// Returns the limits of a moving average's beta: 1 - beta must not be 0 in f32.
inline Limits moving_average() { return between(0, 0.9999999); }

using OptimizerEntry = Entry<Optimizer, FlatParameters&>;
Registry<OptimizerEntry>& optimizers();
// Makes an optimizer from a spec such as "adamw(beta2=0.99, weight_decay=0.1)".
std::unique_ptr<Optimizer> make_optimizer(const Spec& spec, FlatParameters& parameters);

#define REGISTER_OPTIMIZER(Type) \
  [[maybe_unused]] static const bool registered_##Type = ::orrery::nn::register_type<Type>(::orrery::nn::optimizers())

}  // namespace orrery::nn
