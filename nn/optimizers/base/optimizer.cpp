#include "nn/optimizers/base/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <tuple>

#include "engine/autograd/autograd.h"
#include "engine/loops/tensor_loops.h"
#include "engine/tensor/storage.h"
#include "nn/base/spec_family.h"

namespace orrery::nn {
namespace {

constexpr int64_t alignment = 16;  // elements: a segment begins on a cache line

template <class Like>  // a Parameter or a Run
auto treatment(const Like& p) {
  return std::tuple(!p.decay, p.rate_group, p.rate_factor, p.lowest, p.highest);
}

struct Square {
  template <class A>
  HOST_DEVICE double operator()(A x) const {
    return static_cast<double>(x) * static_cast<double>(x);
  }
};

// Structs of f64 numbers in device memory:
struct Request {
  double rate, clip, first_correction, second_correction;
};
struct Fate {  // result of an update
  double norm, skipped;
};
Tensor numbers(size_t bytes, const FlatParameters& parameters) {
  return Tensor::zeros(Shape{static_cast<int64_t>(bytes / sizeof(double))}, Dtype::f64, parameters.values().device());
}

HOST_DEVICE bool is_finite(double x) { return x - x == 0; }

struct Decide {  // computes the control of an update from its request, gradient norm and loss
  const Request* request;
  const double *square, *loss;
  Optimizer::Control* control;
  Fate* fate;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t) const {
    row.once([&] {
      const double norm = std::sqrt(*square);
      const bool skip = fate->skipped != 0 || !is_finite(norm) || (loss && !is_finite(*loss));
      *fate = {norm, skip ? 1.0 : 0.0};
      *control = {request->rate, request->clip > 0 && norm > request->clip ? request->clip / norm : 1.0,
                  request->first_correction, request->second_correction, skip ? 1.0 : 0.0};
    });
  }
};

}  // namespace

const bool family_of_optimizers = add_spec_family<optimizers>("optimizer");

FlatParameters::FlatParameters(Module& module) {
  ensure_paths(module);
  std::vector<NamedParameter> all = parameters_of(module);
  check(!all.empty(), "optimizer: the model has no parameters");
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return treatment(*a.parameter) < treatment(*b.parameter); });
  const Dtype dtype = all[0].parameter->value.dtype();
  const Device device = all[0].parameter->value.device();
  int64_t size = 0;
  for (const NamedParameter& p : all) {
    const Tensor& value = p.parameter->value;
    check(value.dtype() == dtype && value.device() == device, "optimizer: ", p.path, " is ", name(value.dtype()),
          " on ", value.device(), ", but the first parameter is ", name(dtype), " on ", device);
    const int64_t end = size + value.numel(), next = (end + alignment - 1) / alignment * alignment;
    segments_.push_back({p.path, p.parameter, size, end});
    const Parameter& like = *p.parameter;
    if (!runs_.empty() && treatment(like) == treatment(runs_.back()))
      runs_.back().end = next;
    else
      runs_.push_back({size, next, like.decay, like.rate_group, like.rate_factor, like.lowest, like.highest});
    size = next;
  }
  const Dtype wide = dtype == Dtype::bf16 ? Dtype::f32 : dtype;
  values_ = Tensor::zeros(Shape{size}, wide, device), gradients_ = Tensor::zeros_like(values_);
  if (wide != dtype) rounded_ = Tensor::zeros(Shape{size}, dtype, device);
  for (const Segment& s : segments_) {
    part(values_, s).copy_from(s.parameter->value);
    round(s);
    const Tensor home = part(rounded_ ? rounded_ : values_, s);
    TensorBody& body = *s.parameter->value.body();
    body.buffer = home.body()->buffer, body.offset = home.body()->offset;
    body.gradient = part(gradients_, s);
    body.gradient_at_home = true, body.stale = false;
  }
  release_cached(device);  // former parameter buffers: a step does not reuse blocks of their sizes
}
std::vector<std::string> FlatParameters::rate_groups() const {
  std::set<std::string> groups;
  for (const Run& run : runs_)
    if (!run.rate_group.empty()) groups.insert(run.rate_group);
  return {groups.begin(), groups.end()};
}
Tensor FlatParameters::make_moments() const { return Tensor::zeros_like(values_); }
std::vector<FlatParameters::Part> FlatParameters::parts_of(const Segment& s) {
  const Shape& whole = s.parameter->value.shape();
  std::vector<int64_t> rows = s.parameter->parts;
  if (rows.empty()) return {{s.begin, s.end, whole}};
  std::vector<Part> parts;
  int64_t begin = s.begin;
  for (const int64_t n : rows) {
    const Shape shape = whole.with(0, n);
    parts.push_back({begin, begin + shape.numel(), shape});
    begin += shape.numel();
  }
  check(begin == s.end, "optimizer: the packed rows of ", s.path, " do not add up to ", whole);
  return parts;
}
Tensor FlatParameters::part(const Tensor& flat, const Segment& s) const {
  return Tensor::view(flat.body()->buffer, s.begin, s.parameter->value.shape(), flat.dtype());
}
void FlatParameters::zero_gradients() {
  for (const Segment& s : segments_) s.parameter->value.zero_grad();
}
void FlatParameters::settle_gradients() {
  for (const Segment& s : segments_) s.parameter->value.grad();
}
void FlatParameters::round(const Segment& s) const {
  if (rounded_) part(rounded_, s).copy_from(part(values_, s));
}

Optimizer::Optimizer(FlatParameters& parameters)
    : parameters_(parameters),
      requests_(numbers(sizeof(Request), parameters)),
      control_(numbers(sizeof(Control), parameters)),
      outcome_(numbers(sizeof(Fate), parameters)),
      outcomes_(outcome_) {}

Tensor Optimizer::gradient_square() {
  parameters_.settle_gradients();
  const Tensor& g = parameters_.gradients();
  const Tensor total = Tensor::empty_like(g, Shape{}, Dtype::f64);
  sum_of_squares(g, total);
  return total;
}
double Optimizer::gradient_norm() { return std::sqrt(gradient_square().item()); }

void Optimizer::request(double rate, double clip) {
  check(std::isfinite(rate) && rate >= 0, "optimizer: the learning rate must be finite and at least 0, not ", rate);
  ++steps_;
  const auto [first, second] = corrections(steps_);
  *reinterpret_cast<Request*>(requests_.begin<double>()) = {rate, clip, first, second};
  requests_.send();
}
void Optimizer::update(const Tensor& loss) {
  const Tensor square = gradient_square();
  auto* const control = reinterpret_cast<Control*>(control_.mutable_data<double>());
  rows(square.device(), 1, 1,
       Decide{reinterpret_cast<const Request*>(requests_.tensor().data<double>()), square.data<double>(),
              loss ? loss.data<double>() : nullptr, control, reinterpret_cast<Fate*>(outcome_.mutable_data<double>())});
  update_parameters(control);
}
Optimizer::Outcome Optimizer::outcome(size_t ticket) {
  const Fate fate = *reinterpret_cast<const Fate*>(outcomes_.read<double>(ticket));
  return {fate.norm, fate.skipped == 0};
}
void Optimizer::forgive() { zero_bytes(outcome_.device(), outcome_.mutable_raw(), outcome_.bytes()); }

bool Optimizer::step(double rate, double clip, double* norm) {
  request(rate, clip);
  update();
  const Outcome result = outcome(fetch_outcome());
  if (norm) *norm = result.gradient_norm;
  if (result.done) return true;
  --steps_;
  forgive();
  return false;
}
std::pair<double, double> Optimizer::corrections(int64_t) const { return {1, 1}; }

void Optimizer::scale_rates(const std::string& name, const GroupRates& rates) {
  const std::string what = name + ": lr_scales";
  check(rates.spec.name != "none" || rates.spec.items.empty(), what, ": none takes no factors, not ", rates.spec,
        "; use groups(GROUP=FACTOR)");
  const std::vector<std::string> groups = parameters_.rate_groups();
  for (const Spec::Item& item : rates.spec.items) {
    const std::string value = print(item.value);
    check(!item.key.empty(), what, ": ", value, " in ", rates.spec, " has no group name; use groups(GROUP=FACTOR)");
    check(!groups.empty(), what, ": this model has no parameters in groups, so group '", item.key,
          "' does not exist; leave lr_scales out");
    if (std::find(groups.begin(), groups.end(), item.key) == groups.end())
      orrery::detail::fail_unknown(what + ": group", item.key, groups, {});
    const double factor = parse_number(text(what, ": ", item.key), value);
    check(std::isfinite(factor) && factor >= 0, what, ": ", item.key, ": ", value,
          " must be finite and at least 0; 0 keeps the group unchanged");
    check(factor <= 1e6, what, ": ", item.key, ": ", value, " must be at most 1e6");
    rate_factors_[item.key] = factor;
  }
}
double Optimizer::rate_factor(const std::string& group) const {
  const auto found = rate_factors_.find(group);
  return found == rate_factors_.end() ? 1 : found->second;
}
Optimizer::NamedMoments Optimizer::parts(const std::string& name, const Tensor& flat) const {
  NamedMoments all;
  for (const FlatParameters::Segment& s : parameters_.segments())
    all.emplace_back(name + "." + s.path, parameters_.part(flat, s));
  return all;
}

Optimizer::NamedMoments Optimizer::state() const {
  NamedMoments all = moments();
  if (parameters_.rounded())
    for (auto& part : parts("master", parameters_.values())) all.push_back(std::move(part));
  return all;
}

void sum_of_squares(const Tensor& x, const Tensor& sum) {
  sum_elements("sum_of_squares", Square{}, to_sums<double>(sum), row_of(x));
}

Registry<OptimizerEntry>& optimizers() {
  static Registry<OptimizerEntry> all("optimizer");
  return all;
}
std::unique_ptr<Optimizer> make_optimizer(const Spec& spec, FlatParameters& parameters) {
  return make_from(optimizers(), spec, parameters);
}

}  // namespace orrery::nn
