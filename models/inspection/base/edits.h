// Edits of a model's values while it runs: components are scaled, set, taken from another example or
// moved along the difference of two examples.
//
//   edits      edit; edit; ...       applied in this order
//   edit       component operation, or component@position operation, or component@first-last operation
//
//   component  blocks.0.attention.3           head 3: its head_output (TransformerLens: hook_z)
//              blocks.1.feed_forward.unit17   a hidden unit of a feed-forward
//              blocks.0.attention.slot3       a persistent slot, of all heads; blocks.0.attention.1.slot3: of head 1
//              blocks.0.attention.3.key5      the weight that head 3 gives to key 5, at the positions of queries
//              blocks.1.feed_forward          a module: its output, here that of a sublayer
//              stages.0.0.channel7            a channel of a module's output, of a convolution
//              embedding                      a hook value by its name (engine/autograd/hooks.h), such as a state of
//                                             the residual stream: embedding, blocks.0.attention.residual
//   operation  *2                the component times 2; *0 on a head: as if its columns of W_o were 0
//              =0                this number at every element
//              =mean             the mean over all positions of the first pass, or of learn_means
//              =other            the value of the other example; like the next one only in inputs of its size, and
//                               not in those that an analysis generates
//              +2(other-this)    moved by twice the other example's value minus this one's
//
// What lies outside of a component keeps its bits, as does a component times 1.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/autograd/hooks.h"
#include "nn/base/module.h"

namespace orrery::models {

struct AxisRange {  // of indices [begin, end) on an axis; below 0 both count from the axis's end
  int axis;
  int64_t begin, end;
};

struct ValueEdit {
  enum class Operation { scale, set, set_to_mean, set_to_other, add_difference };
  std::string hook;                    // name of the value
  std::vector<AxisRange> region = {};  // empty: all of it
  Operation operation = Operation::set;
  double number = 0;     // factor, or value
  // The mean, or the other example's value: with as many elements in any shape, or broadcast.
  Tensor other = {};
  Tensor own = {};        // this example's value, for add_difference
  std::string text = {};  // as it was given
  int64_t applied = 0;    // number of values that it has changed

  // Returns the edited value; undefined if the region lies outside of it. Learns a mean that is not known.
  Tensor apply_to(const Tensor& value);
};

// Hooks that apply the edits, which must outlive them, in their order.
Hooks::Replace replace_by(std::vector<ValueEdit>& edits);
std::vector<std::string> names_of(const std::vector<ValueEdit>& edits);

// The edits of a text, for a model.
class Edits {
 public:
  // Throws a UsageError that names the wrong part of the text, and the nearest component. A short run of the model
  // finds its components. An empty text has no edits. with_positions: false where a pass does not begin at
  // position 0, as with a cache.
  Edits(const std::string& text, nn::Module& model, bool with_positions = true);
  Edits(const Edits&) = delete;

  bool needs_other() const;
  // `run` runs the model on the examples whose positions a mean is taken over.
  void learn_means(const std::function<void()>& run);
  // Run the model on the other example and on this one. Throws if their values differ in shape.
  void learn_other(const std::function<void()>& run_other, const std::function<void()>& run_this);
  // The model runs with the edits from here on, on this thread, as long as this object lives.
  void begin();
  // Throws if an edit has changed nothing so far, because the input has no such position or key.
  void check_applied() const;

 private:
  std::vector<ValueEdit> edits_;
  std::optional<Hooks> hooks_;
};

}  // namespace orrery::models
