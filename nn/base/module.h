// Modules: parts of a model that hold parameters.  `visit` names each parameter, buffer and child once; counting,
// printing, saving, loading, initializing, moving and optimizing are visitors.
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

// A tensor that is learned.
struct Parameter {
  Parameter() = default;
  // Values are NaN until `initialize` or a checkpoint fills them.  Matrices decay, vectors and scalars do not.
  Parameter(const Shape& shape, Initialization how, Dtype dtype = Dtype::f32);

  Tensor value;
  Initialization initialization;
  bool decay = true;   // weight decay applies
  bool table = false;  // each row is of one token, place or class (embeddings, heads): Muon leaves it to AdamW
  // Of tensors that are packed into one, one below the other: how many rows each has; empty: it is one.  What
  // optimizers do tensor by tensor (a clip, an orthogonal step) they do to each.
  std::vector<int64_t> parts = {};
  double rate_factor = 1;       // of the learning rate
  std::string rate_group = "";  // the setting `learning_rates` of every optimizer scales the rate of a group
  double lowest = -std::numeric_limits<double>::infinity();  // after every step the values are brought back into
  double highest = std::numeric_limits<double>::infinity();  // [lowest, highest]
};

// While one lives, parameters that are made on this thread are counted and get memory that nothing has touched, so that
// a model's size can be known before it costs anything.  More than `limit` elements in all are an Error.  The values
// are undefined until they are filled.
class ParameterCount {
 public:
  explicit ParameterCount(int64_t limit);  // at most largest_size
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
  void operator()(std::string_view name, Parameter& parameter);  // skipped if undefined: an absent bias
  void operator()(std::string_view name, Tensor& buffer);        // state that is saved and moved, not optimized
  void operator()(std::string_view name, Module& child);
  template <class M>
  void operator()(std::string_view name, const std::unique_ptr<M>& child) {
    if (child) (*this)(name, static_cast<Module&>(*child));
  }

 protected:
  virtual void parameter(const std::string& /*path*/, Parameter&) {}
  virtual void buffer(const std::string& /*path*/, Tensor&) {}
  virtual void module(const std::string& /*path*/, Module&) {}  // before its contents
  friend class Module;
  std::string path_;
};

// What is kept of the tokens before, so that a model can go on with a text.  Made by the caller, one for each batch of
// texts that are continued; every attention finds its own by its path.  It holds keys and values, for going on token by
// token, or `of_states` what these are made from: then a stream can be learned block by block, for the weights that
// project the states of before get gradients, the states themselves are constants.
struct Cache {
  struct Entry {
    Tensor key, value;                      // (B, tokens, Hk, D), (B, tokens, Hk, Dv)
    Tensor states = {};                     // (B, tokens, width): an attention's input
    Tensor key_room = {}, value_room = {};  // of one sequence: what key and value are the beginning of, to grow in
  };
  std::map<std::string, Entry> entries;
  int64_t tokens = 0;  // that came before; the model adds those of a pass at its end
  bool of_states = false;
};

// What one run of a model brings along.
struct Pass {
  bool training = false;  // dropout acts
  LateKey key{};          // of this step and micro-batch; every module derives its own from its path
  Tensor lengths;         // (B) i32: how many tokens of each sequence are real; undefined: all
  Tensor document_ids;    // (B, T) i32: a token sees only tokens of the same document; undefined: all one

  Tensor memory;               // (B, Tk, C): what cross attention reads
  Tensor memory_lengths;       // (B) i32
  Tensor memory_document_ids;  // (B, Tk) i32: with `document_ids`, a token reads only the memory of the same document
  Cache* cache = nullptr;      // of keys and values: only where nothing is differentiated; or of states
  int64_t offset() const { return cache ? cache->tokens : 0; }  // place of the first token

  struct Loss {
    std::string name;
    Tensor value;
  };
  std::vector<Loss> losses;                          // differentiable extra losses, which the trainer weights by name
  std::set<std::string, std::less<>> wanted_losses;  // those with a weight: others are not computed
  bool wants_loss(std::string_view name) const { return wanted_losses.contains(name); }
  void add_loss(std::string_view name, const Tensor& value) { losses.push_back({std::string(name), value}); }
};

class Module {
 public:
  virtual ~Module() = default;
  virtual Tensor forward(const Tensor& x, Pass& pass) = 0;
  virtual void visit(Visitor&) {}
  // Once after each step of the optimizer: the only place where a module changes a buffer.  forward may be run again
  // for the same micro-batch (engine/autograd/recompute.h), which pass.key tells.
  virtual void after_step() {}

  // forward, with this module's path put before the message of an error; shows input and output to hooks
  // (engine/autograd/hooks.h).
  Tensor operator()(const Tensor& x, Pass& pass);
  const std::string& path() const { return path_; }
  // The path as a key of what is this module's alone, such as its entry of a cache: an Error if name_paths has never
  // reached the module, because then every other one has the same.
  const std::string& unique_path() const;
  LateKey random_key(const Pass& pass) const { return pass.key.derive(unique_path()); }

 protected:
  Tensor with_path(const std::function<Tensor()>& f) const;

 private:
  friend void name_paths(Module& root);
  friend void ensure_paths(Module& root);
  std::string path_;
  bool named_ = false;
};

void after_step(Module& root);    // of every module in it, in the order of visit
void name_paths(Module& root);    // tells every module its path; a model's constructor ends with it
void ensure_paths(Module& root);  // name_paths, unless the root has been named: as a root, or as a part of a model

struct NamedParameter {
  std::string path;
  Parameter* parameter;
};
std::vector<NamedParameter> parameters_of(Module& module);  // in the order of visit
std::vector<std::pair<std::string, Tensor*>> buffers_of(Module& module);
int64_t count_parameters(Module& module);
void convert(Module& module, Dtype dtype);       // every parameter and floating buffer; buffers of bf16 models are f32
void move(Module& module, Device device);        // every parameter and buffer
Device device_of(Module& module);                // where its parameters live; the CPU if it has none
void initialize(Module& module, uint64_t seed);  // ensure_paths, then each parameter by its own key: (seed, path)

// An error whose message begins with the path of the module in which it arose.
class ModuleError : public Error {
 public:
  using Error::Error;
};

}  // namespace orrery::nn
