#include "models/metrics/base/padding.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "models/modules.h"
#include "nn/attentions/base/attention.h"

namespace orrery::models {
namespace {

std::string_view last_of(std::string_view name) { return name.substr(name.rfind('.') + 1); }

// Returns 2 for values of heads, (B, H, T, ...), else 1, (B, T, ...): see engine/autograd/hooks.h.
int axis_of_tokens(const std::string& name, const Tensor& value) {
  const std::string_view value_name = last_of(name);
  const bool by_slots = (value_name == "hidden" || value_name == "pre_activation") && value.shape().rank() == 4;
  return by_slots || value_name.starts_with("row_") || value_name == "scores" || value_name == "span" ? 2 : 1;
}

}  // namespace

Padding::Padding(nn::Module& root, const nn::ForwardPass* pass) : pass_(pass) {
  for (const auto& [path, module] : modules_of(root)) modules_[path] = module;
}

// Matches key and value of cross attention, and the input and output of its key_norm.
bool Padding::is_of_encoder(const std::string& name) const {
  const size_t norm = name.rfind(".key_norm.");
  if (norm == name.npos && last_of(name) != "key" && last_of(name) != "value") return false;
  const auto found = modules_.find(name.substr(0, norm == name.npos ? name.rfind('.') : norm));
  const auto* const attention =
      found == modules_.end() ? nullptr : dynamic_cast<const nn::AttentionLayer*>(found->second);
  return attention && attention->is_cross_attention();
}

std::vector<int64_t> Padding::lengths(const std::string& name, const Tensor& value) const {
  const Tensor all_lengths = !pass_ ? Tensor() : is_of_encoder(name) ? pass_->encoder_lengths : pass_->lengths;
  const int axis = axis_of_tokens(name, value);
  if (!all_lengths || value.shape().rank() <= axis || value.size(0) != all_lengths.numel()) return {};
  std::vector<int64_t> lengths;
  for (const double length : all_lengths.to_vector()) lengths.push_back(static_cast<int64_t>(length));
  const bool whole = std::all_of(lengths.begin(), lengths.end(), [&](int64_t n) { return n >= value.size(axis); });
  return whole ? std::vector<int64_t>() : lengths;
}

Tensor without_padding(const std::string& name, const Tensor& value, const std::vector<int64_t>& lengths) {
  if (lengths.empty()) return value;
  const NoGrad no_gradient;
  const int axis = axis_of_tokens(name, value);
  const int64_t heads = axis == 2 ? value.size(1) : 1, tokens = value.size(axis),
                real = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  std::vector<int32_t> rows;
  for (int64_t head = 0; head < heads; ++head)
    for (size_t b = 0; b < lengths.size(); ++b)
      for (int64_t t = 0; t < lengths[b]; ++t)
        rows.push_back(static_cast<int32_t>((static_cast<int64_t>(b) * heads + head) * tokens + t));
  const int64_t all = value.size(0) * heads * tokens;
  const Tensor chosen = Tensor::from(Shape{heads * real}, rows).to(value.device());
  return index_select(value.detach().reshape(Shape{all, value.numel() / all}), chosen)
      .reshape(value.shape().with(0, 1).with(axis, real));
}

}  // namespace orrery::models
