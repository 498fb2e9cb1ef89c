// Modules: components of a model with parameters. `visit` names each parameter, buffer and child
// once; visitors count, print, save, load, initialize, move and optimize.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/math/random.h"
#include "engine/tensor/tensor.h"
#include "nn/base/initialization.h"

namespace orrery::nn {

class Module;

// A learned tensor.
struct Parameter {
  Parameter() = default;
  // Values are NaN until `initialize` or a checkpoint fills them. Only matrices get weight decay.
  Parameter(const Shape& shape, Initialization init, Dtype dtype = Dtype::f32);

  Tensor value;
  Initialization initialization;
  bool decay = true;  // weight decay applies
  // Lookup table, a row per token, position or class (embeddings, heads): Muon leaves it to AdamW.
  bool is_lookup_table = false;
  // Rows of each of the tensors that are packed into this one; empty: a single tensor. Optimizers
  // apply per-tensor steps (a clip, an orthogonal step) to each packed tensor.
  std::vector<int64_t> packed_rows = {};
  double lr_scale = 1;                                          // factor of the learning rate
  std::string lr_group = "";                                    // named in the setting `lr_scales` of every optimizer
  double min_value = -std::numeric_limits<double>::infinity();  // every step clamps the values to
  double max_value = std::numeric_limits<double>::infinity();   // [min_value, max_value]
};

// A scope in which parameters made on this thread are counted and get untouched memory, so that a model's size is known
// at no cost. Throws if there are more than `limit` elements in all. Values are undefined until filled.
class ParameterCount {
 public:
  explicit ParameterCount(int64_t limit);  // at most max_elements
  ~ParameterCount();
  ParameterCount(const ParameterCount&) = delete;
  int64_t elements() const { return elements_; }
  bool exceeded() const { return elements_ > limit_; }
  void add(const Shape& shape);

 private:
  int64_t limit_, elements_ = 0;
  ParameterCount* outer_;
};

class Visitor {
 public:
  virtual ~Visitor() = default;
  void operator()(std::string_view name, Parameter& parameter);  // skipped if undefined, such as an absent bias
  void operator()(std::string_view name, Tensor& buffer);        // state that is saved and moved, not optimized
  void operator()(std::string_view name, Module& child);
  template <class M>
  void operator()(std::string_view name, const std::unique_ptr<M>& child) {
    if (child) (*this)(name, static_cast<Module&>(*child));
  }

 protected:
  virtual void parameter(const std::string& /*path*/, Parameter&) {}
  virtual void buffer(const std::string& /*path*/, Tensor&) {}
  virtual void module(const std::string& /*path*/, Module&) {}  // called before its contents
  friend class Module;
  std::string path_;
};

// A cache of previous tokens for continuing texts. The caller makes one per batch of texts; each attention finds its
// entry by its path. It holds keys and values (incremental decoding) or, if `holds_states`, the inputs they are
// projected from (training on streams). Then the projection weights get gradients, but the cached states are constants.
struct Cache {
  struct Entry {
    Tensor key, value;                          // (B, tokens, Hk, D), (B, tokens, Hk, Dv)
    Tensor states = {};                         // (B, tokens, width): an attention's input
    Tensor key_buffer = {}, value_buffer = {};  // one sequence only: buffers in which key and value grow
  };
  std::map<std::string, Entry> entries;
  int64_t length = 0;  // number of previous tokens; the model adds those of a pass at its end
  bool holds_states = false;
};

// One forward pass: flags, rng key and side inputs.
struct ForwardPass {
  bool training = false;  // dropout applies
  DeviceRandomKey rng{};  // rng key of this step and micro-batch; each module derives its own from its path
  Tensor lengths;         // (B) i32: number of real tokens in each sequence; undefined: all
  Tensor document_ids;    // (B, T) i32: a token attends only to its own document; undefined: one document

  Tensor encoder_output;        // (B, Tk, C): encoder output, for cross attention
  Tensor encoder_lengths;       // (B) i32
  Tensor encoder_document_ids;  // (B, Tk) i32: with `document_ids`, a token attends only to its own document
  Cache* cache = nullptr;       // keys and values, without gradients only; or states
  int64_t offset() const { return cache ? cache->length : 0; }  // position of the first token

  struct Loss {
    std::string name;
    Tensor value;
  };
  std::vector<Loss> losses;  // differentiable extra losses, which the trainer weights by name
  std::set<std::string, std::less<>> requested_losses;  // requested losses; others are not computed
  bool wants_loss(std::string_view name) const { return requested_losses.contains(name); }
  void add_loss(std::string_view name, const Tensor& value) { losses.push_back({std::string(name), value}); }
};

class Module {
 public:
  virtual ~Module() = default;
  virtual Tensor forward(const Tensor& x, ForwardPass& pass) = 0;
  virtual void visit(Visitor&) {}
  // Called once after each optimizer step; modules change buffers only here. forward may run again
  // for the same micro-batch (engine/autograd/recompute.h): then pass.rng is the same.
  virtual void after_step() {}

  // Runs forward, offers input and output to hooks (engine/autograd/hooks.h), and adds this
  // module's path to the front of error messages.
  Tensor operator()(const Tensor& x, ForwardPass& pass);
  const std::string& path() const { return path_; }
  // Returns the path as a unique name. Throws if name_paths has not reached the module: all such have the same path.
  const std::string& unique_path() const;
  std::pair<std::string, std::string> origin;  // registry and spec that made it: "attention", "softmax(span=none)"
  DeviceRandomKey rng_key(const ForwardPass& pass) const { return pass.rng.derive(unique_path()); }

 protected:
  Tensor with_path(const std::function<Tensor()>& f) const;

 private:
  friend void name_paths(Module& root);
  friend void ensure_paths(Module& root);
  std::string path_;
  bool named_ = false;
};

void after_step(Module& root);    // for every module in it, in the order of visit
void name_paths(Module& root);    // gives every module its path; call it last in a model's constructor
void ensure_paths(Module& root);  // name_paths, unless the root has been named, as a root or inside a model

struct NamedParameter {
  std::string path;
  Parameter* parameter;
};
std::vector<NamedParameter> parameters_of(Module& module);  // in the order of visit
std::vector<std::pair<std::string, Tensor*>> buffers_of(Module& module);
int64_t count_parameters(Module& module);
void convert(Module& module, Dtype dtype);       // every parameter and floating buffer; buffers of bf16 models are f32
void move(Module& module, Device device);        // every parameter and buffer
Device device_of(Module& module);                // device of its parameters; the CPU if it has none
void initialize(Module& module, uint64_t seed);  // ensure_paths, then fills each parameter by its rng key: (seed, path)

// An error whose message begins with the path of the module that threw it.
class ModuleError : public Error {
 public:
  using Error::Error;
};

}  // namespace orrery::nn
