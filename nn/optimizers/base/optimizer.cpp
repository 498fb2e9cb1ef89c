#include "nn/optimizers/base/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <tuple>

#include "engine/autograd/autograd.h"
#include "engine/loops/tensor_loops.h"
#include "engine/system/machine_memory.h"
#include "engine/tensor/storage.h"
#include "nn/base/spec_family.h"

namespace orrery::nn {
namespace {

constexpr int64_t alignment = 16;  // elements: a segment begins on a cache line

template <class Like>  // a Parameter or a ParamGroup
auto options_of(const Like& p) {
  return std::tuple(!p.decay, p.lr_group, p.lr_scale, p.min_value, p.max_value);
}

// Structs of f64 numbers in device memory:
struct Request {
  double lr, clip, first_correction, second_correction;
};
struct UpdateResult {  // skipped: not 0 if this update or an earlier one was skipped
  double norm, skipped;
};
Tensor numbers(size_t bytes, const FlatParameters& parameters) {
  return Tensor::zeros(Shape{static_cast<int64_t>(bytes / sizeof(double))}, Dtype::f64, parameters.values().device());
}

HOST_DEVICE bool is_finite(double x) { return x - x == 0; }

struct ComputeStepArguments {  // from the request, the gradient norm and the loss
  const Request* request;
  const double *square, *loss;
  Optimizer::StepArguments* arguments;
  UpdateResult* update_result;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t) const {
    row.once([&] {
      const double norm = std::sqrt(*square);
      const bool skip = update_result->skipped != 0 || !is_finite(norm) || (loss && !is_finite(*loss));
      *update_result = {norm, skip ? 1.0 : 0.0};
      *arguments = {request->lr, request->clip > 0 && norm > request->clip ? request->clip / norm : 1.0,
                    request->first_correction, request->second_correction, skip ? 1.0 : 0.0};
    });
  }
};

}  // namespace

const bool family_of_optimizers = add_spec_family<optimizers>("optimizer");

FlatParameters::FlatParameters(Module& module) {
  ensure_paths(module);
  std::vector<NamedParameter> all = parameters_of(module);
  check(!all.empty(), "optimizer: the model has no parameters; its visit() must name at least one");
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return options_of(*a.parameter) < options_of(*b.parameter); });
  const Dtype dtype = all[0].parameter->value.dtype();
  const Device device = all[0].parameter->value.device();
  int64_t size = 0;
  for (const NamedParameter& p : all) {
    const Tensor& value = p.parameter->value;
    check(value.dtype() == dtype && value.device() == device, "optimizer: ", p.path, " is ", name(value.dtype()),
          " on ", value.device(), ", another parameter is ", name(dtype), " on ", device, "; convert the whole model");
    const int64_t end = size + value.numel(), next = (end + alignment - 1) / alignment * alignment;
    segments_.push_back({p.path, p.parameter, size, end});
    const Parameter& like = *p.parameter;
    if (!groups_.empty() && options_of(like) == options_of(groups_.back()))
      groups_.back().end = next;
    else
      groups_.push_back({size, next, like.decay, like.lr_group, like.lr_scale, like.min_value, like.max_value});
    size = next;
  }
  const Dtype wide = dtype == Dtype::bf16 ? Dtype::f32 : dtype;
  values_ = Tensor::zeros(Shape{size}, wide, device), gradients_ = Tensor::zeros_like(values_);
  if (wide != dtype) bf16_copy_ = Tensor::zeros(Shape{size}, dtype, device);
  for (const Segment& s : segments_) {
    segment_view(values_, s).copy_from(s.parameter->value);
    round(s);
    const Tensor view = segment_view(bf16_copy_ ? bf16_copy_ : values_, s);
    TensorImpl& impl = *s.parameter->value.impl();
    impl.buffer = view.impl()->buffer, impl.offset = view.impl()->offset;
    impl.gradient = segment_view(gradients_, s);
    impl.has_fixed_gradient = true, impl.stale = false;
  }
  release_cached(device);  // former parameter buffers: no step reuses blocks of their sizes
}
std::vector<std::string> FlatParameters::lr_groups() const {
  std::set<std::string> groups;
  for (const ParamGroup& group : groups_)
    if (!group.lr_group.empty()) groups.insert(group.lr_group);
  return {groups.begin(), groups.end()};
}
Tensor FlatParameters::make_moments() const { return Tensor::zeros_like(values_); }
std::vector<FlatParameters::PackedTensor> FlatParameters::packed_tensors_of(const Segment& s) {
  const Shape& whole = s.parameter->value.shape();
  std::vector<int64_t> rows = s.parameter->packed_rows;
  if (rows.empty()) return {{s.begin, s.end, whole}};
  std::vector<PackedTensor> packed;
  int64_t begin = s.begin;
  for (const int64_t n : rows) {
    const Shape shape = whole.with(0, n);
    packed.push_back({begin, begin + shape.numel(), shape});
    begin += shape.numel();
  }
  check(begin == s.end, "optimizer: the packed rows of ", s.path, " do not add up to ", whole);
  return packed;
}
Tensor FlatParameters::segment_view(const Tensor& flat, const Segment& s) const {
  return Tensor::view(flat.impl()->buffer, s.begin, s.parameter->value.shape(), flat.dtype());
}
void FlatParameters::zero_gradients() {
  for (const Segment& s : segments_) s.parameter->value.zero_grad();
}
void FlatParameters::write_pending_zeros() {
  for (const Segment& s : segments_) s.parameter->value.grad();
}
void FlatParameters::round(const Segment& s) const {
  if (bf16_copy_) segment_view(bf16_copy_, s).copy_from(segment_view(values_, s));
}

Optimizer::Optimizer(FlatParameters& parameters)
    : parameters_(parameters),
      gradient_squares_(parameters.gradients(), {{0, parameters.gradients().numel()}}),
      requests_(numbers(sizeof(Request), parameters)),
      arguments_(numbers(sizeof(StepArguments), parameters)),
      status_(numbers(sizeof(UpdateResult), parameters)),
      status_copies_(status_) {}

const Tensor& Optimizer::gradient_square() {
  parameters_.write_pending_zeros();
  return gradient_squares_.of(parameters_.gradients(), parameters_.owners());
}
double Optimizer::gradient_norm() { return std::sqrt(gradient_square().item()); }

void Optimizer::send_request(double lr, double clip) {
  check(std::isfinite(lr) && lr >= 0, "optimizer: the learning rate must be finite and at least 0, not ", lr);
  ++steps_;
  const auto [first, second] = corrections(steps_);
  *reinterpret_cast<Request*>(requests_.begin<double>()) = {lr, clip, first, second};
  requests_.send();
}
void Optimizer::update(const Tensor& loss) {
  const Tensor& square = gradient_square();
  auto* const arguments = reinterpret_cast<StepArguments*>(arguments_.mutable_data<double>());
  rows(square.device(), 1, 1,
       ComputeStepArguments{reinterpret_cast<const Request*>(requests_.tensor().data<double>()), square.data<double>(),
                            loss ? loss.data<double>() : nullptr, arguments,
                            reinterpret_cast<UpdateResult*>(status_.mutable_data<double>())});
  update_parameters(arguments);
  if (const Owners* const owners = parameters_.owners())
    owners->gather(parameters_.bf16_copy() ? parameters_.bf16_copy() : parameters_.values());
}
Optimizer::StepStatus Optimizer::status(size_t ticket) {
  const UpdateResult update_result = *reinterpret_cast<const UpdateResult*>(status_copies_.read<double>(ticket));
  return {update_result.norm, update_result.skipped == 0};
}
void Optimizer::clear_skip() { zero_bytes(status_.device(), status_.mutable_raw(), status_.bytes()); }

bool Optimizer::step(double lr, double clip, double* norm) {
  send_request(lr, clip);
  update();
  const StepStatus result = status(fetch_status());
  if (norm) *norm = result.gradient_norm;
  if (result.done) return true;
  --steps_;
  clear_skip();
  return false;
}
std::pair<double, double> Optimizer::corrections(int64_t) const { return {1, 1}; }

void Optimizer::set_lr_scales(const std::string& name, const GroupLearningRates& lr_scales) {
  const std::string what = name + ": lr_scales";
  check(lr_scales.spec.name != "none" || lr_scales.spec.items.empty(), what, ": none takes no factors, not ",
        lr_scales.spec, "; use groups(GROUP=FACTOR)");
  const std::vector<std::string> groups = parameters_.lr_groups();
  for (const Spec::Item& item : lr_scales.spec.items) {
    const std::string value = print(item.value);
    check(!item.key.empty(), what, ": ", value, " in ", lr_scales.spec, " has no group name; use groups(GROUP=FACTOR)");
    check(!groups.empty(), what, ": this model has no parameters in groups, so group '", item.key,
          "' does not exist; leave lr_scales out");
    if (std::find(groups.begin(), groups.end(), item.key) == groups.end())
      orrery::detail::fail_unknown(what + ": group", item.key, groups, {});
    const double factor = parse_number(text(what, ": ", item.key), value);
    check(std::isfinite(factor) && factor >= 0, what, ": ", item.key, " is ", value,
          "; it must be finite and at least 0; 0 keeps the group unchanged");
    check(factor <= 1e6, what, ": ", item.key, " is ", value, "; it must be at most 1e6");
    lr_scales_[item.key] = factor;
  }
}
double Optimizer::lr_scale(const std::string& group) const {
  const auto found = lr_scales_.find(group);
  return found == lr_scales_.end() ? 1 : found->second;
}
Optimizer::NamedMoments Optimizer::named_segments(const std::string& name, const Tensor& flat) const {
  NamedMoments all;
  for (const FlatParameters::Segment& s : parameters_.segments())
    all.emplace_back(name + "." + s.path, parameters_.segment_view(flat, s));
  return all;
}

Optimizer::NamedMoments Optimizer::state() const {
  NamedMoments all = moments();
  if (parameters_.bf16_copy())
    for (auto& segment : named_segments("master", parameters_.values())) all.push_back(std::move(segment));
  return all;
}

std::vector<IndexRange> Optimizer::shares(int64_t count) const {
  const int64_t all = parameters_.values().numel();
  std::vector<IndexRange> shares;
  for (int64_t r = 0, begin = 0; r < count; ++r) {
    const int64_t end = r + 1 == count ? all : std::max(begin, cut_before(share_of(all, count, r).end));
    shares.push_back({begin, end});
    begin = end;
  }
  return shares;
}
int64_t Optimizer::begin_of(const std::string& moment) const {
  const std::string path = moment.substr(moment.find('.') + 1);
  for (const FlatParameters::Segment& s : parameters_.segments())
    if (s.path == path) return s.begin;
  fail("optimizer: the moment ", moment, " belongs to no parameter");
}
void Optimizer::move_state(bool to_first) const {
  for (const auto& [name, tensor] : state()) parameters_.owners()->move_state(tensor, begin_of(name), to_first);
}

void Optimizer::forget_others() const {
  if (parameters_.values().device() != Device::cpu) return;
  for (const auto& [name, tensor] : state()) {
    const int64_t begin = begin_of(name), size = tensor.numel(), element = bytes_of(tensor.dtype()),
                  before = std::clamp<int64_t>(parameters_.mine().begin - begin, 0, size),
                  after = std::clamp<int64_t>(parameters_.mine().end - begin, before, size);
    auto* const memory = static_cast<std::byte*>(tensor.mutable_raw());
    release_pages(memory, before * element), release_pages(memory + after * element, (size - after) * element);
  }
}

Registry<OptimizerEntry>& optimizers() {
  static Registry<OptimizerEntry> all("optimizer");
  return all;
}
std::unique_ptr<Optimizer> make_optimizer(const Spec& spec, FlatParameters& parameters) {
  return make_from(optimizers(), spec, parameters);
}

}  // namespace orrery::nn
