#include "nn/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <tuple>

#include "engine/autograd.h"
#include "engine/dispatch.h"
#include "engine/loops.h"

namespace orrery::nn {
namespace {

constexpr int64_t alignment = 16;  // elements: a segment begins on a cache line

template <class Like>  // a Parameter or a Run
auto treatment(const Like& p) {
  return std::tuple(!p.decay, p.rate_group, p.lowest, p.highest);
}

template <class T>
struct Square {
  In<T> g;
  HOST_DEVICE double operator()(int64_t i, int64_t) const {
    const double x = static_cast<double>(g[i]);
    return x * x;
  }
};

}  // namespace

FlatParameters::FlatParameters(Module& module) {
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
          " on ", value.device(), ", the first parameter ", name(dtype), " on ", device);
    const int64_t end = size + value.count(), next = (end + alignment - 1) / alignment * alignment;
    segments_.push_back({p.path, p.parameter, size, end});
    const Parameter& like = *p.parameter;
    if (!runs_.empty() && treatment(like) == treatment(runs_.back()))
      runs_.back().end = next;
    else
      runs_.push_back({size, next, like.decay, like.rate_group, like.lowest, like.highest});
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
}
std::vector<std::string> FlatParameters::rate_groups() const {
  std::set<std::string> groups;
  for (const Run& run : runs_)
    if (!run.rate_group.empty()) groups.insert(run.rate_group);
  return {groups.begin(), groups.end()};
}
Tensor FlatParameters::make_moments() const { return Tensor::zeros_like(values_); }
Tensor FlatParameters::part(const Tensor& flat, const Segment& s) const {
  return Tensor::view(flat.body()->buffer, s.begin, s.parameter->value.shape(), flat.dtype());
}
void FlatParameters::forget_gradients() {
  for (const Segment& s : segments_) s.parameter->value.forget_grad();
}
void FlatParameters::settle_gradients() {
  for (const Segment& s : segments_) s.parameter->value.grad();
}
void FlatParameters::round(const Segment& s) const {
  if (rounded_) part(rounded_, s).copy_from(part(values_, s));
}

Optimizer::Optimizer(FlatParameters& parameters)
    : parameters_(parameters), control_(Tensor::zeros(Shape{4}, Dtype::f64, parameters.values().device())) {}

double Optimizer::gradient_norm() {
  parameters_.settle_gradients();
  const Tensor& g = parameters_.gradients();
  const Tensor total = Tensor::empty(Shape{}, Dtype::f64, g.device());
  sum_of_squares(g, total.mutable_data<double>());
  return std::sqrt(total.item());
}

bool Optimizer::step(double rate, double clip, double* norm) {
  check(std::isfinite(rate) && rate >= 0, "optimizer: the rate must be finite and not negative, not ", rate);
  const double size = gradient_norm();
  if (norm) *norm = size;
  if (!std::isfinite(size)) return false;
  ++steps_;
  const auto [first, second] = corrections(steps_);
  const double factor = clip > 0 && size > clip ? clip / size : 1.0;
  control_.copy_from(Tensor::from(Shape{4}, {rate, factor, first, second}, Dtype::f64));
  update(static_cast<const Control*>(control_.raw()));
  return true;
}
std::pair<double, double> Optimizer::corrections(int64_t) const { return {1, 1}; }

void Optimizer::scale_rates(const std::string& name, const GroupRates& rates) {
  const std::string what = name + ": rates";
  check(rates.spec.name != "equal" || rates.spec.items.empty(), what, ": equal takes no factors, not ", rates.spec,
        "; write by_group(GROUP=FACTOR)");
  const std::vector<std::string> groups = parameters_.rate_groups();
  for (const Spec::Item& item : rates.spec.items) {
    const std::string value = print(item.value);
    check(!item.key.empty(), what, ": ", value, " in ", rates.spec, " names no group; write by_group(GROUP=FACTOR)");
    check(!groups.empty(), what, ": no parameter of this model belongs to a group, so there is no '", item.key,
          "'; leave rates out");
    if (std::find(groups.begin(), groups.end(), item.key) == groups.end())
      orrery::detail::fail_unknown(what + ": group", item.key, groups, {});
    const double factor = parse_number(text(what, ": ", item.key), value);
    check(std::isfinite(factor) && factor >= 0, what, ": ", item.key, ": ", value,
          " must be finite and not negative; 0 holds the group still");
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

void sum_of_squares(const Tensor& x, double* sum) {
  dispatch(x.dtype(), "sum_of_squares",
           [&]<class T>() { reduce(x.device(), 1, x.count(), 1, Square<T>{{x.data<T>()}}, sum); });
}

Registry<OptimizerEntry>& optimizers() {
  static Registry<OptimizerEntry> all("optimizer");
  return all;
}
std::unique_ptr<Optimizer> make_optimizer(const Spec& spec, FlatParameters& parameters) {
  return make_from(optimizers(), spec, parameters);
}

}  // namespace orrery::nn
