#include "nn/base/module.h"

#include <algorithm>
#include <limits>
#include <set>

#include "engine/autograd/autograd.h"
#include "engine/autograd/finite_guard.h"
#include "engine/autograd/hooks.h"
#include "engine/types/check.h"
#include "nn/base/pass_scope.h"

namespace orrery::nn {
namespace {

std::string join(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : path + "." + std::string(name);
}

class ModuleVisitor final : public Visitor {
 public:
  explicit ModuleVisitor(std::function<void(const std::string&, Module&)> f) : f_(std::move(f)) {}
  void module(const std::string& path, Module& m) override { f_(path, m); }

 private:
  std::function<void(const std::string&, Module&)> f_;
};

class Collect final : public Visitor {
 public:
  std::vector<NamedParameter> parameters;
  std::vector<std::pair<std::string, Tensor*>> buffers;
  void parameter(const std::string& path, Parameter& p) override {
    check(paths_.insert(path).second, "module: the name '", path, "' is given to two parameters; names must differ");
    parameters.push_back({path, &p});
  }
  void buffer(const std::string& path, Tensor& b) override {
    check(paths_.insert(path).second, "module: the name '", path, "' is given twice; names must differ");
    buffers.push_back({path, &b});
  }

 private:
  std::set<std::string> paths_;
};

thread_local ParameterCount* active_count = nullptr;
thread_local const ForwardPass* current_pass = nullptr;

Tensor make_value(const Shape& shape, Dtype dtype) {
  if (!active_count) return Tensor::full(shape, std::numeric_limits<double>::quiet_NaN(), dtype);
  active_count->add(shape);
  return Tensor::empty(shape, dtype, Device::cpu);
}

}  // namespace

ParameterCount::ParameterCount(int64_t limit)
    : limit_(std::min(limit, max_elements)), outer_(std::exchange(active_count, this)) {}
ParameterCount::~ParameterCount() { active_count = outer_; }
void ParameterCount::add(const Shape& shape) {
  elements_ += shape.numel();  // below 2^60 each, so the sum cannot overflow
  check(!exceeded(), "parameters: the model has more than ", limit_, " elements; use smaller sizes than ", shape);
}

Parameter::Parameter(const Shape& shape, Initialization init, Dtype dtype)
    : value(make_value(shape, dtype)), initialization(init), decay(shape.rank() >= 2) {
  value.set_requires_grad();
}

void Visitor::operator()(std::string_view name, Parameter& p) {
  if (p.value) parameter(join(path_, name), p);
}
void Visitor::operator()(std::string_view name, Tensor& b) {
  if (b) buffer(join(path_, name), b);
}
void Visitor::operator()(std::string_view name, Module& child) {
  const std::string outer = std::exchange(path_, join(path_, name));
  module(path_, child);
  child.visit(*this);
  path_ = outer;
}

PassScope::PassScope(const ForwardPass& pass) : outer_(std::exchange(current_pass, &pass)) {}
PassScope::~PassScope() { current_pass = outer_; }
const ForwardPass* PassScope::current() { return current_pass; }

Tensor Module::operator()(const Tensor& x, ForwardPass& pass) {
  const PassScope scope(pass);
  return with_path([&] { return hook(path_, "output", forward(hook(path_, "input", x), pass)); });
}
Tensor Module::with_path(const std::function<Tensor()>& f) const {
  const ModuleScope running(path_);
  try {
    return f();
  } catch (const ModuleError&) {
    throw;
  } catch (const NonFiniteError&) {  // its message names the module
    throw;
  } catch (const Error& error) {
    throw ModuleError(path_.empty() ? error.what() : path_ + ": " + error.what());
  }
}

void after_step(Module& root) {
  root.after_step();
  ModuleVisitor visitor([](const std::string&, Module& m) { m.after_step(); });
  root.visit(visitor);
}
void name_paths(Module& root) {
  root.named_ = true;
  ModuleVisitor visitor([](const std::string& path, Module& m) { m.path_ = path, m.named_ = true; });
  root.visit(visitor);
}
void ensure_paths(Module& root) {
  if (!root.named_) name_paths(root);
}
const std::string& Module::unique_path() const {
  check(named_,
        "module: the model's modules have no paths, so all would use the same random numbers and cache entry; "
        "end its constructor with nn::name_paths(*this), or initialize it or load a checkpoint");
  return path_;
}
std::vector<NamedParameter> parameters_of(Module& module) {
  Collect all;
  module.visit(all);
  return std::move(all.parameters);
}
std::vector<std::pair<std::string, Tensor*>> buffers_of(Module& module) {
  Collect all;
  module.visit(all);
  return std::move(all.buffers);
}
int64_t count_parameters(Module& module) {
  int64_t n = 0;
  for (const NamedParameter& p : parameters_of(module)) n += p.parameter->value.numel();
  return n;
}
void convert(Module& module, Dtype dtype) {
  for (const NamedParameter& p : parameters_of(module))
    p.parameter->value = p.parameter->value.detach().to(dtype).detach().set_requires_grad();
  for (const auto& [path, buffer] : buffers_of(module))  // running statistics: bf16 would lose their small steps
    if (is_floating(buffer->dtype())) *buffer = buffer->to(dtype == Dtype::bf16 ? Dtype::f32 : dtype);
}
void move(Module& module, Device device) {
  for (const NamedParameter& p : parameters_of(module))
    p.parameter->value = p.parameter->value.detach().to(device).detach().set_requires_grad();
  for (const auto& [path, buffer] : buffers_of(module)) *buffer = buffer->to(device);
}
Device device_of(Module& module) {
  const std::vector<NamedParameter> all = parameters_of(module);
  return all.empty() ? Device::cpu : all.front().parameter->value.device();
}
void initialize(Module& module, uint64_t seed) {
  ensure_paths(module);
  for (const NamedParameter& p : parameters_of(module))
    fill(p.parameter->value, p.parameter->initialization, RandomKey{seed, 0}.derive("initialization").derive(p.path));
}

}  // namespace orrery::nn
