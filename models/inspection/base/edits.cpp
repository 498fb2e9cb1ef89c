#include "models/inspection/base/edits.h"

#include <algorithm>
#include <map>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/types/usage_error.h"
#include "models/inspection/base/edit_text.h"
#include "models/inspection/base/hook_axes.h"
#include "nn/base/pass_scope.h"

namespace orrery::models {
namespace {

using Operation = ValueEdit::Operation;

std::string path_of(const std::string& hook) { return hook.substr(0, hook.rfind('.')); }

// Returns 1 in [begin, end) of an axis, else 0, in the shape of `value`.
Tensor ones_in(const Tensor& value, int axis, int64_t begin, int64_t end) {
  Shape shape = value.shape();
  for (int i = 0; i < shape.rank(); ++i) shape = shape.with(i, i == axis ? value.size(axis) : 1);
  std::vector<double> numbers(static_cast<size_t>(value.size(axis)));
  std::fill(numbers.begin() + begin, numbers.begin() + end, 1.0);
  return broadcast_to(Tensor::from(shape, numbers, value.dtype()).to(value.device()), value.shape());
}
Tensor product(const Tensor& a, const Tensor& b) { return a && b ? a * b : a ? a : b; }

// Returns 1 at tokens and 0 at padding, (B, 1, ..., T, ..., 1); undefined: there is no padding.
Tensor real_positions(const std::string& hook, const Tensor& value) {
  const nn::ForwardPass* const pass = nn::PassScope::current();
  const std::vector<int> axes = position_axes(hook, value.shape());
  const Tensor lengths = !pass ? Tensor() : is_of_encoder(hook) ? pass->encoder_lengths : pass->lengths;
  if (!lengths || axes.size() != 2 || lengths.numel() != value.size(0)) return {};
  const int64_t positions = value.size(axes[1]);
  std::vector<double> real;
  for (const double length : lengths.to_vector())
    for (int64_t t = 0; t < positions; ++t) real.push_back(static_cast<double>(t) < length);
  Shape shape = value.shape();
  for (int i = 1; i < shape.rank(); ++i) shape = shape.with(i, i == axes[1] ? positions : 1);
  return Tensor::from(shape, real, Dtype::f64).to(value.device());
}

// Returns the position of the first of these keys: a cache may drop earlier ones.
int64_t first_key(const std::string& hook, const Tensor& value, int64_t slots) {
  const nn::ForwardPass* const pass = nn::PassScope::current();
  if (!pass || !pass->cache || is_of_cross_attention(hook)) return 0;
  return pass->offset() + value.size(-2) - (value.size(-1) - slots);
}

Tensor columns(const Tensor& x, int64_t begin, int64_t end) {
  return begin == end ? Tensor() : slice(x, 3, begin, end);
}
Tensor zeros(const Tensor& x, int64_t count) {
  return count == 0 ? Tensor() : Tensor::zeros_like(x, x.shape().with(-1, count));
}
Tensor joined(std::vector<Tensor> parts) {  // without those that are undefined
  std::erase_if(parts, [](const Tensor& part) { return !part; });
  return concatenate(parts, 3);
}
Tensor with_zeros(const Tensor& x, int64_t size) { return joined({x, zeros(x, size - x.size(-1))}); }
// Returns the columns of a pass, keys from `first` on and then slots, as slots and then all keys.
Tensor slots_first(const Tensor& x, int64_t slots, int64_t first) {
  const int64_t keys = x.size(-1) - slots;
  return joined({columns(x, keys, keys + slots), zeros(x, first), columns(x, 0, keys)});
}

// Returns 1 at the places that the edit changes, undefined for all; nothing if there are none.
std::optional<Tensor> places_in(const ValueEdit& edit, const Tensor& value) {
  const bool of_keys = is_of_keys(edit.hook);
  Tensor places = of_keys && edit.visible ? slice(edit.visible, 3, 0, value.size(-1)) : Tensor();
  for (const AxisRange& range : edit.region) {
    const int axis = range.axis < 0 ? range.axis + value.shape().rank() : range.axis;
    const bool is_key = of_keys && axis == 3 && range.begin >= 0;
    const int64_t size = value.size(axis), limit = is_key ? size - edit.slots : size,
                  from = range.begin < 0 ? size : is_key ? -first_key(edit.hook, value, edit.slots) : 0;
    const int64_t begin = std::clamp<int64_t>(range.begin + from, 0, limit),
                  end = std::clamp<int64_t>(range.end + from, 0, limit);
    if (begin == end) return std::nullopt;
    places = product(places, ones_in(value, axis, begin, end));
  }
  if (of_keys && places && sum(places).item() == 0) return std::nullopt;
  return places;
}

// Returns the mean; the places lose the keys that no query has seen.
Tensor mean_in(const ValueEdit& edit, const Tensor& value, Tensor& places) {
  Tensor mean = edit.total / maximum(edit.count, Tensor::full_like(edit.count, {1}, 1)), known = edit.count;
  if (is_of_keys(edit.hook)) {
    const int64_t slots = edit.slots, keys = value.size(-1) - slots, begin = slots + first_key(edit.hook, value, slots);
    const auto of_pass = [&](const Tensor& x) {
      return joined({columns(x, begin, begin + keys), columns(x, 0, slots)});
    };
    mean = of_pass(mean), known = of_pass(known);
    places = product(places, broadcast_to(heaviside(known).to(value.dtype()), value.shape()));
  }
  return broadcast_to(mean.to(value.dtype()), value.shape());
}

bool needs_visible(const ValueEdit& edit, const std::string& name) {
  return is_of_keys(edit.hook) && name == path_of(edit.hook) + ".visible";
}

// Calls apply(edit, value) for each edit of this value; undefined: it changes nothing.
template <class Apply>
Tensor edited_by(std::vector<ValueEdit>& edits, const std::string& name, const Tensor& value, const Apply& apply) {
  Tensor edited;
  for (ValueEdit& edit : edits) {
    if (needs_visible(edit, name)) edit.visible = value.detach();
    if (edit.hook != name) continue;
    edit.reached = true;
    if (const Tensor next = apply(edit, edited ? edited : value)) edited = next;
  }
  return edited;
}

}  // namespace

void ValueEdit::observe(const Tensor& value, bool add) {
  const NoGrad guard;
  const std::vector<int> axes = position_axes(hook, value.shape());
  const Tensor x = value.detach().to(Dtype::f64), one = Tensor::full_like(x, {1}, 1);
  Tensor counted = real_positions(hook, value);
  if (is_of_keys(hook) && visible) counted = product(counted, slice(visible, 3, 0, x.size(-1)).to(Dtype::f64));
  counted = broadcast_to(counted ? counted : one, x.shape());
  const Tensor seen = where(counted, x, Tensor::zeros_like(x, {1}));
  Tensor more = axes.empty() ? seen : sum(seen, axes, true), times = axes.empty() ? counted : sum(counted, axes, true);
  if (is_of_keys(hook)) {
    const int64_t first = first_key(hook, value, slots);
    more = slots_first(more, slots, first), times = slots_first(times, slots, first);
    const int64_t size = std::max(more.size(-1), total ? total.size(-1) : 0);
    more = with_zeros(more, size), times = with_zeros(times, size);
    if (total) total = with_zeros(total, size), count = with_zeros(count, size);
  }
  total = !total ? more : add ? total + more : where(count, total, more);
  count = !count ? times : add ? count + times : where(count, count, times);
}

bool ValueEdit::has_numbers_of_keys() const {
  const auto has = [&](auto&& range_is) { return std::any_of(region.begin(), region.end(), range_is); };
  const bool key = has([](const AxisRange& range) { return range.axis == -1 && range.begin >= 0; }),
             slot = has([](const AxisRange& range) { return range.begin < 0; });
  return is_of_keys(hook) && (key || (operation == Operation::set_to_mean && !slot));
}

Tensor ValueEdit::apply_to(const Tensor& value) {
  if (example && example != InspectedExample::running()) return {};
  if (needs_other() && other.numel() != value.numel()) return {};
  std::optional<Tensor> places = places_in(*this, value);
  if (!places) return {};
  ++applied;
  const auto like_value = [&](const Tensor& x) {
    return x.to(value.dtype()).to(value.device()).reshape(value.shape());
  };
  Tensor edited;
  switch (operation) {
    case Operation::scale: edited = scale(value, number); break;
    case Operation::set: edited = Tensor::full_like(value, value.shape(), number); break;
    case Operation::set_to_mean:
      if (!total || is_of_keys(hook)) observe(value, false);
      edited = mean_in(*this, value, *places);
      break;
    case Operation::set_to_other: edited = like_value(other); break;
    case Operation::add_difference: edited = value + scale(like_value(other) - like_value(own), number); break;
  }
  return *places ? where(*places, edited, value) : edited;
}

std::vector<std::string> names_of(const std::vector<ValueEdit>& edits) {
  std::vector<std::string> names;
  for (const ValueEdit& edit : edits) {
    names.push_back(edit.hook);
    if (is_of_keys(edit.hook)) names.push_back(path_of(edit.hook) + ".visible");
  }
  return names;
}

Hooks::Replace replace_by(std::vector<ValueEdit>& edits) {
  return {[&edits](const std::string& name, const Tensor& value) {
    return edited_by(edits, name, value, [](ValueEdit& edit, const Tensor& x) { return edit.apply_to(x); });
  }};
}

Edits::Edits(const std::string& text, nn::Module& model, Passes passes)
    : edits_(read_edits(text, model, passes)), given_(plain_edits(text)) {
  std::erase_if(edits_, [](const ValueEdit& edit) { return edit.operation == Operation::scale && edit.number == 1; });
}

bool Edits::needs_other() const {
  return std::any_of(edits_.begin(), edits_.end(), [](const ValueEdit& edit) { return edit.needs_other(); });
}

bool Edits::has_numbers_of_keys() const {
  return std::any_of(edits_.begin(), edits_.end(), [](const ValueEdit& edit) { return edit.has_numbers_of_keys(); });
}

std::string Edits::mean_over() const {
  const auto is_mean = [](const ValueEdit& edit) { return edit.operation == Operation::set_to_mean; };
  return std::any_of(edits_.begin(), edits_.end(), is_mean) ? over_ : "";
}

// Each run learns one mean: that of the first value, in the order of execution, whose mean is not known.
void Edits::learn_means(const std::string& over, const std::function<void()>& run) {
  over_ = over;
  std::vector<const ValueEdit*> known;
  const auto is_unknown = [&](const ValueEdit& edit) {
    return edit.operation == Operation::set_to_mean && std::find(known.begin(), known.end(), &edit) == known.end();
  };
  for (auto left = std::count_if(edits_.begin(), edits_.end(), is_unknown); left > 0; --left) {
    const ValueEdit* learned = nullptr;
    const Hooks hooks(names_of(edits_), Hooks::Replace{[&](const std::string& name, const Tensor& value) {
                        return edited_by(edits_, name, value, [&](ValueEdit& edit, const Tensor& x) {
                          if (!is_unknown(edit)) return edit.apply_to(x);
                          if (!learned) learned = &edit;
                          if (learned == &edit) edit.observe(x, true);
                          return Tensor();
                        });
                      }});
    run();
    known.push_back(learned);
  }
}

void Edits::learn_other(const InspectedExample& other, const InspectedExample& example) {
  if (!needs_other()) return;
  const auto values_of = [&](const InspectedExample& each) {
    std::map<std::string, Tensor> values;
    const Hooks hooks(names_of(edits_), [&](const std::string& name, const Tensor& x) { values[name] = x.clone(); });
    each.run();
    return values;
  };
  const auto others = values_of(other), own = values_of(example);
  for (ValueEdit& edit : edits_) {
    if (!edit.needs_other()) continue;
    edit.other = others.at(edit.hook), edit.own = own.at(edit.hook), edit.example = &example;
    check_usage(edit.other.shape() == edit.own.shape(), "--edits: '", edit.text, "': ", edit.hook, " is ",
                edit.own.shape(), " for this example and ", edit.other.shape(),
                " for the other; give a --patch_from with as many positions");
  }
}

void Edits::begin() {
  for (ValueEdit& edit : edits_) edit.reached = false;
  if (!edits_.empty()) hooks_.emplace(names_of(edits_), replace_by(edits_));
}

void Edits::end_at(const std::string& read) {
  for (ValueEdit& edit : edits_)
    if (!edit.reached) edit.late_for = read;
}

void Edits::check_applied() const {
  for (const ValueEdit& edit : edits_) {
    check_usage(edit.late_for.empty(), "--edits: '", edit.text, "' changes nothing that is read: ", edit.hook,
                " is computed after ", edit.late_for, "; edit a value before it, or read a later one");
    check_usage(edit.applied > 0, "--edits: '", edit.text, "' changed nothing: ", edit.hook,
                " of this input has no such position or key, or no query that sees it; choose another");
  }
}

}  // namespace orrery::models
