// The layer around an attention function; its formula is in nn/attentions/base/attention.h.
#include <algorithm>
#include <cmath>

#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/attentions/base/fused.h"
#include "nn/attentions/base/slots.h"
#include "nn/attentions/base/span.h"
#include "nn/normalizations/base/normalization.h"

namespace orrery::nn {
namespace {

bool is_set(const Spec& spec) { return spec.name != "none"; }

constexpr int64_t eviction_step = 64;  // tokens; smaller steps would copy the cache too often
// Returns the first position to keep if the token at `next` attends up to `distance` back.
int64_t first_kept_position(int64_t next, int64_t distance) {
  return std::max<int64_t>(next - distance, 0) / eviction_step * eviction_step;
}
// Returns x (B, tokens, ...) from position `first` on; its last token is at position next - 1.
Tensor from_position(const Tensor& x, int64_t first, int64_t next) {
  const int64_t tokens = x.size(1), drop = first - (next - tokens);
  return drop > 0 ? slice(x, 1, drop, tokens) : x;
}

int64_t checked_head_size(const AttentionLayerOptions& o) {
  check(o.heads >= 1 && (o.head_size > 0 || o.width % o.heads == 0), "attention: heads (", o.heads,
        ") must divide width (", o.width, "); change heads, or give head_size");
  check(o.kv_heads == 0 || o.heads % o.kv_heads == 0, "attention: kv_heads (", o.kv_heads, ") must divide heads (",
        o.heads, ")");
  return o.head_size > 0 ? o.head_size : o.width / o.heads;
}
// Channels of all queries, and of all head outputs.
int64_t query_width(const AttentionLayerOptions& o) {
  return product_of_sizes("attention: heads times head_size", {o.heads, checked_head_size(o)});
}

void check_support(std::string_view name, const AttentionSettings& s, const AttentionLayerOptions& o,
                   const AttentionSupport& support) {
  check(support.dropout || s.dropout == 0, name, ": has no attention weights to drop, so dropout must be 0, not ",
        s.dropout);
  check(support.span || !is_set(s.span), name, ": cannot be combined with span=", s.span, "; use softmax or pointwise");
  check(support.slots || !is_set(s.persistent), name, ": cannot be combined with persistent=", s.persistent,
        "; use softmax, pointwise or relu_former");
  const bool terms = o.position && o.position->acts_on_scores(), cross = o.encoder_width != 0;
  check(support.relative_position || !terms, name,
        ": has no scores to which a position could add; use position=learned, sinusoidal, rotary or none");
  check(support.cross || !cross, name,
        ": attends to its own sequence only, so it cannot be a cross attention; use softmax");
  check(support.mask || !o.mask || !(o.mask->has_table() || o.mask->band().window > 0), name,
        ": running sums only add keys, so mask must be causal or full; use softmax or pointwise for another mask");
  check(!cross || !is_set(s.span), name, ": span=", s.span,
        " needs queries and keys of one sequence; use span=none in cross attention");
  check(!cross || !terms, name,
        ": alibi and relative positions need queries and keys of one sequence; use another position with cross "
        "attention");
}

}  // namespace

void check_cache(std::string_view name, const ForwardPass& pass, bool causal) {
  if (!pass.cache) return;
  check(causal, name, ": only causal attention can continue from a cache");
  check(!pass.lengths && !pass.document_ids, name,
        ": a cache cannot be combined with lengths or document_ids; leave one of them out");
}

// Returns `cached` (B, tokens, ...) followed by `more`. A single sequence grows in `buffer`, which
// doubles when full: O(1) amortized per token. It is not used if a copy of the cache shares it.
Tensor append(const Tensor& cached, const Tensor& more, Tensor& buffer) {
  if (!cached) return more;
  if (cached.size(0) != 1 || is_recording()) return concatenate({cached, more}, 1);
  const Shape shape = cached.shape().with(1, cached.size(1) + more.size(1));
  const bool reusable = buffer && buffer.impl().use_count() == 1 && buffer.impl()->buffer == cached.impl()->buffer;
  int64_t begin = reusable ? (cached.impl()->offset - buffer.impl()->offset) / bytes_of(cached.dtype()) : 0;
  if (!reusable || begin + shape.numel() > buffer.numel()) {
    buffer = Tensor::empty_like(cached, Shape{2 * shape.numel()});
    buffer.flat_view(0, cached.shape()).copy_from(cached);
    begin = 0;
  }
  buffer.flat_view(begin + cached.numel(), more.shape()).copy_from(more);
  return buffer.flat_view(begin, shape);
}

void append_to_cache(const Module& attention, AttentionInputs& in, ForwardPass& pass, int64_t reach) {
  if (!pass.cache) return;
  check(!pass.cache->holds_states, attention.path(),
        ": this attention does not support streams; use softmax or pointwise");
  const int64_t next = pass.offset() + in.query.size(1);  // position after the last query
  Cache::Entry& entry = pass.cache->entries[attention.unique_path()];
  in.key = append(entry.key, in.key, entry.key_buffer), in.value = append(entry.value, in.value, entry.value_buffer);
  const int64_t first = reach > 0 ? first_kept_position(next, reach - 1) : 0;
  entry.key = from_position(in.key, first, next).detach(), entry.value = from_position(in.value, first, next).detach();
}

void narrow_to_named(const NamedMask* named, const AttentionInputs& in, const ForwardPass& pass, AttentionMask& mask) {
  if (!named) return;
  const int64_t next = pass.offset() + in.query.size(1), later = named->facts().later.value_or(0);
  check(pass.offset() == 0 || pass.offset() >= later, "mask: the first ", later, " tokens attend to each other, so a "
        "cache of ", pass.offset(), " tokens cannot continue; read the text again with a new cache");
  named->narrow(mask, {in.query.size(1), in.key.size(1), pass.offset(), next - in.key.size(1)}, in.query.device());
}

void add_relative_positions(const Position* position, int64_t distances, AttentionInputs& in) {
  if (!position || !position->acts_on_scores()) return;
  const Dtype dtype = in.query.dtype();
  if (const Tensor bias = position->relative_bias(distances, in.query.device()))
    in.relative_bias = bias.to(dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32);
  if (const Tensor key = position->relative_embedding(distances)) in.relative_embedding = key.to(dtype);
}

AttentionLayer::AttentionLayer(std::string_view name, const AttentionSettings& settings,
                               const AttentionLayerOptions& options, const AttentionSupport& support)
    : name_(name),
      settings_(settings),
      options_(options),
      kv_heads_(options.kv_heads ? options.kv_heads : options.heads),
      head_size_(checked_head_size(options)),
      output_(
          query_width(options), options.width,
          {.bias = options.bias,
           .weight = options.initial_weights.residual_output(query_width(options), options.width, options.layers)}) {
  check_support(name, settings, options, support);
  const int64_t width = options.width, queries = query_width(options),
                keys = product_of_sizes(name, {kv_heads_, head_size_});
  const auto linear = [&](std::vector<int64_t> packed_rows) {
    const Initialization weight = options.initial_weights.hidden(width, queries, options.layers);
    return Linear::Options{.bias = options.bias, .weight = weight, .packed_rows = std::move(packed_rows)};
  };
  if (options.encoder_width) {
    query_ = std::make_unique<Linear>(width, queries, linear({}));
    key_value_ =
        std::make_unique<Linear>(options.encoder_width, sum_of_sizes(name, {keys, keys}), linear({keys, keys}));
  } else {
    query_key_value_ =
        std::make_unique<Linear>(width, sum_of_sizes(name, {queries, keys, keys}), linear({queries, keys, keys}));
  }
  if (options.query_key_bias)
    query_bias_ = Parameter(Shape{queries}, constant(0)), key_bias_ = Parameter(Shape{keys}, constant(0));
  if (is_set(settings.qk_norm)) {
    query_norm_ = make_normalization(settings.qk_norm, {.width = head_size_, .bias = false});
    key_norm_ = make_normalization(settings.qk_norm, {.width = head_size_, .bias = false});
  }
  if (is_set(settings.gate)) {
    gate_function_.emplace(Activation(settings.gate));
    gate_ = std::make_unique<Linear>(width, queries, linear({}));
  }
  if (is_set(settings.span)) span_ = std::make_unique<Span>(settings.span, width, options.heads, options.context);
  if (is_set(settings.persistent)) slots_ = std::make_unique<Slots>(settings.persistent, kv_heads_, head_size_);
  attend_to_self_ = settings.attend_to_self == "yes" || (settings.attend_to_self == "default" && !span_);
  if (!options.position) return;
  options.position->check_head_size(head_size_);
  if (options.context > 0) options.position->check_reach(within_window(options.context));
}
AttentionLayer::~AttentionLayer() = default;

void AttentionLayer::set_function(const Spec& function, const ParameterSettings& settings) {
  const std::string& per = settings.parameters_per;
  const Activation f(function);
  check(per != "model" || options_.shared_activation || f.parameter_count() == 0, name_,
        ": parameters_per=model needs a model that shares them; use head or layer");
  function_.emplace(f, per == "model" ? options_.shared_activation : nullptr, per == "head" ? options_.heads : 0);
}

AttentionOptions AttentionLayer::window_and_ramp() const {
  AttentionOptions options{.mask = {.attend_to_self = attend_to_self_}};
  if (span_) span_->set_window_and_ramp(options);
  int64_t& window = options.mask.window;
  if (const int64_t named = options_.mask ? options_.mask->band().window : 0; named > 0)
    window = window > 0 ? std::min(window, named) : named;
  return options;
}
// Returns how far back a cache of keys must reach. With a table L counts keys one by one, also those beyond the ramp.
int64_t AttentionLayer::reach() const {
  const AttentionOptions options = window_and_ramp();
  return options_.mask && options_.mask->has_table() ? options.mask.window : span_->reach(options);
}
// Returns the number of these distances that are visible under the span.
int64_t AttentionLayer::within_window(int64_t distances) const {
  const int64_t window = window_and_ramp().mask.window;
  return window > 0 ? std::min(distances, window) : distances;
}

Tensor AttentionLayer::split_heads(const Tensor& x, int64_t heads) const {
  return x.reshape(Shape{x.size(0), x.size(1), heads, head_size_});
}

Tensor add_bias(const Parameter& bias, const Tensor& x) { return bias.value ? x + bias.value : x; }

// Returns the cached keys and values of the encoder output, normalized and rotated, or null. They
// are computed once, because the encoder output is constant while a cache lives.
const Cache::Entry* cached_encoder_keys(const AttentionLayer& attention, const ForwardPass& pass) {
  if (!pass.cache) return nullptr;
  const auto found = pass.cache->entries.find(attention.unique_path());
  return found == pass.cache->entries.end() ? nullptr : &found->second;
}

AttentionInputs AttentionLayer::project(const Tensor& x, ForwardPass& pass) {
  const int64_t queries = options_.heads * head_size_, keys = kv_heads_ * head_size_;
  std::vector<Tensor> qkv;
  if (query_key_value_) {
    qkv = linear_split(x, query_key_value_->weight.value, query_key_value_->bias.value, {queries, keys, keys});
  } else {
    check(pass.encoder_output && pass.encoder_output.shape().rank() == 3 &&
              pass.encoder_output.size(2) == options_.encoder_width,
          name_, ": cross attention needs pass.encoder_output (batch, time, ", options_.encoder_width, "), not ",
          pass.encoder_output ? pass.encoder_output.shape() : Shape());
    if (const Cache::Entry* const cached = cached_encoder_keys(*this, pass))
      return {.query = split_heads(add_bias(query_bias_, (*query_)(x, pass)), options_.heads),
              .key = cached->key,
              .value = cached->value};
    qkv = linear_split(pass.encoder_output, key_value_->weight.value, key_value_->bias.value, {keys, keys});
    qkv.insert(qkv.begin(), (*query_)(x, pass));
  }
  AttentionInputs in{.query = split_heads(add_bias(query_bias_, qkv[0]), options_.heads),
                     .key = split_heads(add_bias(key_bias_, qkv[1]), kv_heads_),
                     .value = split_heads(qkv[2], kv_heads_)};
  if (pass.cache && pass.cache->holds_states && query_key_value_) prepend_stream_states(x, in, pass);
  return in;
}

// Attends as far as the current spans reach, but caches more, because the next optimizer step may
// lengthen a span: by less than 64 tokens at usable learning rates.
void AttentionLayer::prepend_stream_states(const Tensor& x, AttentionInputs& in, ForwardPass& pass) {
  check_cache(name_, pass, options_.causal);
  check(span_ != nullptr, name_, ": a stream model needs a span; give one, as in ", name_, "(span=fixed(256))");
  const AttentionOptions options = window_and_ramp();
  // At distance `reach`, the far end of the ramp, a key has weight 0 but a gradient.
  const int64_t reach = this->reach(), max_distance = options.mask.window - 1, begin = pass.offset(),
                next = begin + x.size(1);
  Tensor& cached = pass.cache->entries[unique_path()].states;
  Tensor all = x.detach();
  if (cached) {
    check(cached.size(0) == x.size(0), name_, ": the number of sequences (", x.size(0),
          ") must equal that of the cache (", cached.size(0), ")");
    const Tensor weight = query_key_value_->weight.value, bias = query_key_value_->bias.value;
    const int64_t keys = kv_heads_ * head_size_, rows = weight.size(0), queries = rows - 2 * keys;
    const Tensor states = from_position(cached, first_kept_position(begin, std::min(max_distance, reach)), begin);
    const std::vector<Tensor> kv =
        linear_split(states, weight.slice(queries, rows), bias ? bias.slice(queries, rows) : Tensor(), {keys, keys});
    in.key = concatenate({split_heads(add_bias(key_bias_, kv[0]), kv_heads_), in.key}, 1);
    in.value = concatenate({split_heads(kv[1], kv_heads_), in.value}, 1);
    all = concatenate({cached, all}, 1);
  }
  cached = from_position(all, first_kept_position(next, std::min(max_distance, reach + eviction_step)), next);
}

void AttentionLayer::add_score_terms(const Tensor& x, AttentionInputs& in, ForwardPass& pass) const {
  const int64_t distances = std::max(pass.offset() + in.query.size(1), in.key.size(1));
  add_relative_positions(options_.position, within_window(distances), in);
  if (span_) span_->add_to(in, x, pass);
  if (function_) in.parameters = function_->parameters();
  if (slots_) {
    const SlotKeysAndValues slots = slots_->keys_and_values();
    in.slot_key = slots.key, in.slot_value = slots.value;
  }
}

AttentionOptions AttentionLayer::options_of(const AttentionInputs& in, const ForwardPass& pass) const {
  const bool cross = options_.encoder_width != 0;
  const int64_t cached = cross ? 0 : in.key.size(1) - in.query.size(1);
  constexpr int64_t max_offset = 1 << 28;  // further back than any window; positions of a long stream may exceed 2^29
  AttentionOptions o{.mask = {.causal = options_.causal && !cross,
                              .attend_to_self = attend_to_self_ || cross,
                              .query_offset = cached,
                              .keys_dropped = cross ? 0 : std::min(pass.offset() - cached, max_offset),
                              .lengths = cross ? pass.encoder_lengths : pass.lengths,
                              .query_lengths = pass.lengths,
                              .query_document_ids = pass.document_ids,
                              .key_document_ids = cross ? pass.encoder_document_ids : pass.document_ids},
                     .scale = settings_.scale > 0 ? settings_.scale : 1 / std::sqrt(static_cast<double>(head_size_)),
                     .dropout = pass.training ? settings_.dropout : 0,
                     .rng_key = pass.training && settings_.dropout > 0 ? rng_key(pass) : DeviceRandomKey{}};
  check(!cross || bool(pass.document_ids) == bool(pass.encoder_document_ids), name_,
        ": cross attention attends within a token's own document, so pass.document_ids and pass.encoder_document_ids "
        "must be given together; only ",
        pass.document_ids ? "the first" : "the second", " is given");
  if (span_) span_->set_window_and_ramp(o);
  if (!cross) narrow_to_named(options_.mask.get(), in, pass, o.mask);
  return o;
}

// Returns the separate attention calls: one over all keys or, with split slots, one over each of context and slots.
std::vector<AttentionLayer::AttentionCall> AttentionLayer::attention_calls(const AttentionInputs& in,
                                                                           const AttentionOptions& o) const {
  AttentionCall context{in, o};
  context.options.hooked_path = path(), context.options.hooked_name = "scores";
  if (!slots_ || !slots_->split()) return {context};
  AttentionCall slots{slot_inputs_of(in.query, {in.slot_key, in.slot_value}), context.options};
  slots.inputs.parameters = in.parameters;
  slots.options.mask = {.causal = false, .query_lengths = o.mask.query_lengths};
  slots.options.rng_key = o.rng_key.derive("slots"), slots.options.hooked_name = "slot_scores";
  context.inputs.slot_key = context.inputs.slot_value = {};
  return {context, slots};
}

// Returns the weights of each call or their replacements; hooks get them joined. Empty: no weights.
std::vector<Tensor> AttentionLayer::hooked_weights(const std::vector<AttentionCall>& calls) {
  std::vector<Tensor> all;
  for (const AttentionCall& call : calls) all.push_back(weights(call.inputs, call.options));
  if (!all[0]) return {};
  const int64_t keys = all[0].size(3);
  const Tensor hooked = hook(path(), "weights", all.size() == 1 ? all[0] : concatenate(all, 3));
  if (all.size() == 1) return {hooked};
  return {slice(hooked, 3, 0, keys), slice(hooked, 3, keys, hooked.size(3))};
}

void AttentionLayer::hook_row_statistics(const Tensor& w, const AttentionInputs& in, const AttentionOptions& o) const {
  const Tensor visible = attention_mask(in, o);
  const AttentionOutput rows = row_statistics(w, visible);
  const Tensor some = sum(visible, {-1}), none = Tensor::full_like(w, {1}, NAN);
  const auto offer = [&](const char* name, const Tensor& x) { hook(path(), name, where(some, x, none)); };
  offer("row_sum", rows.sum), offer("row_entropy", rows.entropy);
  offer("row_zero_fraction", rows.zero_fraction), offer("row_max", rows.maximum);
}

Tensor AttentionLayer::attend_all(const AttentionInputs& in, const AttentionOptions& o, ForwardPass& pass) {
  std::vector<AttentionCall> calls = attention_calls(in, o);
  // Uses |= instead of ||, because each call must offer its name to the hooks.
  bool rows = false, observed = is_hooked(path(), "weights"), replaced = has_replacement(path(), "weights");
  for (const AttentionCall& call : calls)
    observed |= is_hooked(path(), call.options.hooked_name), observed |= has_hooked_step(call.options),
        replaced |= has_replacement(path(), call.options.hooked_name);
  for (const char* name : {"visible", "row_sum", "row_entropy", "row_zero_fraction", "row_max"})
    rows |= is_hooked(path(), name);
  observed |= rows;
  std::vector<Tensor> w;
  if (observed) {
    std::optional<NoGrad> guard;
    if (!replaced) guard.emplace();
    const Tensor mask = rows ? attention_mask(in, o).detach() : Tensor();  // hooked before the values that it masks
    if (rows) hook(path(), "visible", broadcast_to(mask, {in.query.size(0), heads(), mask.size(2), mask.size(3)}));
    w = hooked_weights(calls);
    const NoGrad no_grad;
    if (rows && !w.empty()) hook_row_statistics(w.size() == 1 ? w[0] : concatenate(w, 3), in, o);
  }
  check(!replaced || !w.empty(), name_,
        ": has no attention weights, so a hook cannot replace them; use softmax or pointwise");
  Tensor all;
  for (size_t i = 0; i < calls.size(); ++i) {
    auto& [inputs, options] = calls[i];
    options.hooked_path = options.hooked_name = {};  // the hooks have had the scores
    if (replaced && pass.cache && pass.cache->holds_states)  // counts the multiply-adds, which weights do not change
      attend(inputs, options, pass);
    const Tensor y = replaced ? finish(apply_weights(w[i], inputs, options)) : attend(inputs, options, pass);
    all = all ? all + y : y;
  }
  return all;
}

Tensor AttentionLayer::attend_heads(AttentionInputs in, const Tensor& x, ForwardPass& pass) {
  const bool cross = options_.encoder_width != 0, cached = cross && cached_encoder_keys(*this, pass);
  if (!cross) check_cache(name_, pass, options_.causal);
  if (query_norm_) {
    in.query = (*query_norm_)(in.query, pass);
    if (!cached) in.key = (*key_norm_)(in.key, pass);
  }
  if (options_.position) {
    in.query = options_.position->rotate(in.query, pass);
    ForwardPass encoder_pass;
    encoder_pass.document_ids = pass.encoder_document_ids;
    if (!cached) in.key = options_.position->rotate(in.key, cross ? encoder_pass : pass);
  }
  if (cross && pass.cache && !cached) pass.cache->entries[unique_path()] = {in.key.detach(), in.value.detach()};
  in.query = hook(path(), "query", in.query), in.key = hook(path(), "key", in.key);
  in.value = hook(path(), "value", in.value);
  if (!cross && !(pass.cache && pass.cache->holds_states))
    append_to_cache(*this, in, pass, pass.cache && span_ ? reach() : 0);
  add_score_terms(x, in, pass);
  const AttentionOptions o = options_of(in, pass);
  const Tensor output = hook(path(), "head_output", attend_all(in, o, pass));
  const Tensor y = output.reshape(Shape{output.size(0), output.size(1), output.size(2) * output.size(3)});
  return gate_ ? gate_function_->gate((*gate_)(x, pass), y) : y;
}

Tensor AttentionLayer::forward_with_residual(const Tensor& x, const Tensor& residual, ForwardPass& pass) {
  const Tensor y = attend_heads(project(x, pass), x, pass);
  return linear(y, output_.weight.value, output_.bias.value, residual);
}

void AttentionLayer::visit(Visitor& v) {
  v("query_key_value", query_key_value_);
  v("query", query_);
  v("key_value", key_value_);
  v("query_bias", query_bias_);
  v("key_bias", key_bias_);
  v("query_norm", query_norm_);
  v("key_norm", key_norm_);
  if (function_) function_->visit(v);
  v("gate", gate_);
  if (gate_function_) gate_function_->visit(v, "gate_activation");
  v("span", span_);
  v("slots", slots_);
  v("output", output_);
}

}  // namespace orrery::nn
