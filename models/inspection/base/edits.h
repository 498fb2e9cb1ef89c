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
//              blocks.0.channel7              a channel of a module's output, of a convolution
//              embedding                      a hook value by its name (engine/autograd/hooks.h), such as a state of
//                                             the residual stream: embedding, blocks.0.attention.residual
//   operation  *2                the component times 2; *0 on a head: as if its columns of W_o were 0
//              =0                this number at every element
//              =mean             the mean over the positions of the first pass, or of learn_means, without padding; of
//                               the model under the other edits. A key's mean is over the queries that see it, in the
//                               first pass that has it; of an image's pixels over all of them
//              =other            the value of the other example in a run of this one, both of the unedited model; the
//                               same value elsewhere, as in a text that an analysis generates, is not edited
//              +2(other-this)    moved by twice the other example's value minus this one's
//
// Scores and weights of pairs that the mask hides stay 0. Positions and keys count from the beginning of a text.
// What lies outside of a component keeps its bits, and an edit that is exactly *1 is left out, so that it changes
// none. Other edits of scores, weights and hidden values take the path that computes these values one by one, instead
// of the fused one: the results then differ by rounding even where the edit changes nothing.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/autograd/hooks.h"
#include "models/inspection/base/inspected_example.h"

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
  double number = 0;                          // factor, or value
  Tensor other = {}, own = {};                // values of the other example and of this one, in any shape
  const InspectedExample* example = nullptr;  // this example, whose runs alone are edited; null: every pass
  std::string text = {};                      // as it was given
  int64_t slots = 0;                          // columns of weights and scores after those of keys
  int64_t applied = 0;                        // number of values that it has changed
  bool reached = false;                       // the value has been computed
  std::string late_for = {};                  // the value that was read before
  Tensor visible = {};                        // of a value of keys: 1 where a query sees the key
  Tensor total = {}, count = {};  // of the mean, in f64: sums over batch and positions; of keys: slots, then all keys

  bool needs_other() const { return operation == Operation::set_to_other || operation == Operation::add_difference; }
  bool has_numbers_of_keys() const;  // also the means of all keys, one each
  // Returns the edited value; undefined if the region lies outside of it. Learns a mean that is not known.
  Tensor apply_to(const Tensor& value);
  // Adds a value to the mean or, unless `add`, only those keys that the mean lacks.
  void observe(const Tensor& value, bool add);
};

// Hooks that apply the edits, which must outlive them, in their order.
Hooks::Replace replace_by(std::vector<ValueEdit>& edits);
std::vector<std::string> names_of(const std::vector<ValueEdit>& edits);

// A pass computes all positions of its input; with a cache some of them, after those of the passes before it; or a
// block of a text stream, with the keys that the spans reach.
enum class Passes { whole, decoding, stream };

// The edits of a text, for a model.
class Edits {
 public:
  // Throws a UsageError that names the wrong part of the text, and the nearest component. A short run of the model
  // finds its components. An empty text has no edits. Positions need whole passes, and keys no stream.
  Edits(const std::string& text, nn::Module& model, Passes passes = Passes::whole);
  Edits(const Edits&) = delete;

  bool needs_other() const;
  bool has_numbers_of_keys() const;
  // `run` runs the model on the examples whose positions, `over`, a mean is taken over: once for each mean.
  void learn_means(const std::string& over, const std::function<void()>& run);
  // Runs both examples. Throws if their values differ in shape.
  void learn_other(const InspectedExample& other, const InspectedExample& example);
  // The model runs with the edits from here on, on this thread, as long as this object lives.
  void begin();
  // The result of the run is the value of this name, which is computed now.
  void end_at(const std::string& read);
  // Throws if an edit has changed nothing so far: the input has no such position or key, or its value comes after
  // the result of the run.
  void check_applied() const;
  // Returns the edits as they were given, and what the mean is taken over; both empty: none.
  const std::string& given() const { return given_; }
  std::string mean_over() const;

 private:
  std::vector<ValueEdit> edits_;
  std::string given_, over_ = "the positions of the first pass";
  std::optional<Hooks> hooks_;
};

}  // namespace orrery::models
