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

bool given(const Spec& spec) { return spec.name != "none"; }

constexpr int64_t step_of_dropping = 64;  // tokens; smaller steps would copy the cache too often
// Returns the first position to keep if the token at `next` attends up to `distance` back.
int64_t first_reached(int64_t next, int64_t distance) {
  return std::max<int64_t>(next - distance, 0) / step_of_dropping * step_of_dropping;
}
// Returns x (B, tokens, ...) from position `first` on; its last token is at position next - 1.
Tensor from_place(const Tensor& x, int64_t first, int64_t next) {
  const int64_t tokens = x.size(1), drop = first - (next - tokens);
  return drop > 0 ? slice(x, 1, drop, tokens) : x;
}

int64_t checked_head_size(const AttentionLayerOptions& o) {
  check(o.heads >= 1 && (o.head_size > 0 || o.width % o.heads == 0), "attention: heads (", o.heads,
        ") must divide width (", o.width, "); change heads, or give head_size");
  check(o.key_heads == 0 || o.heads % o.key_heads == 0, "attention: kv_heads (", o.key_heads, ") must divide heads (",
        o.heads, ")");
  return o.head_size > 0 ? o.head_size : o.width / o.heads;
}
// Channels of all queries, and of all head outputs.
int64_t query_width(const AttentionLayerOptions& o) {
  return product_of_sizes("attention: heads times head_size", {o.heads, checked_head_size(o)});
}

void check_abilities(std::string_view name, const AttentionSettings& s, const AttentionLayerOptions& o,
                     const AttentionAbilities& can) {
  check(can.dropout || s.dropout == 0, name, ": has no attention weights to drop, so dropout must be 0, not ",
        s.dropout);
  check(can.span || !given(s.span), name, ": cannot be combined with span=", s.span, "; use softmax or pointwise");
  check(can.slots || !given(s.persistent), name, ": cannot be combined with persistent=", s.persistent,
        "; use softmax, pointwise or relu_former");
  const bool terms = o.position && o.position->acts_on_scores(), cross = o.memory_width != 0;
  check(can.distance_terms || !terms, name,
        ": has no scores to which a position could add; use position=learned, sinusoidal, rotary or none");
  check(can.cross || !cross, name,
        ": attends to its own sequence only, so it cannot be a cross attention; use softmax");
  check(!cross || !given(s.span), name, ": span=", s.span,
        " needs queries and keys of one sequence; use span=none in cross attention");
  check(!cross || !terms, name,
        ": alibi and relative positions need queries and keys of one sequence; use another position with cross "
        "attention");
}

}  // namespace

void check_cache(std::string_view name, const Pass& pass, bool causal) {
  if (!pass.cache) return;
  check(causal, name, ": only causal attention can continue from a cache");
  check(!pass.lengths && !pass.document_ids, name,
        ": a cache cannot be combined with lengths or document_ids; leave one of them out");
}

// Returns `kept` (B, tokens, ...) followed by `more`. A single sequence grows in `room`, which
// doubles when full: O(1) amortized per token. A room shared with a copy of the cache is not used.
Tensor appended(const Tensor& kept, const Tensor& more, Tensor& room) {
  if (!kept) return more;
  if (kept.size(0) != 1 || recording()) return concatenate({kept, more}, 1);
  const Shape shape = kept.shape().with(1, kept.size(1) + more.size(1));
  const bool ours = room && room.body().use_count() == 1 && room.body()->buffer == kept.body()->buffer;
  int64_t begin = ours ? (kept.body()->offset - room.body()->offset) / bytes_of(kept.dtype()) : 0;
  if (!ours || begin + shape.numel() > room.numel()) {
    room = Tensor::empty_like(kept, Shape{2 * shape.numel()});
    room.part(0, kept.shape()).copy_from(kept);
    begin = 0;
  }
  room.part(begin + kept.numel(), more.shape()).copy_from(more);
  return room.part(begin, shape);
}

void continue_from_cache(const Module& attention, AttentionInputs& r, Pass& pass, int64_t reach) {
  if (!pass.cache) return;
  check(!pass.cache->of_states, attention.path(),
        ": this attention does not support streams; use softmax or pointwise");
  const int64_t next = pass.offset() + r.query.size(1);  // position after the last query
  Cache::Entry& kept = pass.cache->entries[attention.unique_path()];
  r.key = appended(kept.key, r.key, kept.key_room), r.value = appended(kept.value, r.value, kept.value_room);
  const int64_t first = reach > 0 ? first_reached(next, reach - 1) : 0;
  kept.key = from_place(r.key, first, next).detach(), kept.value = from_place(r.value, first, next).detach();
}

void add_distance_terms(const Position* position, int64_t distances, AttentionInputs& r) {
  if (!position || !position->acts_on_scores()) return;
  const Dtype dtype = r.query.dtype();
  if (const Tensor bias = position->relative_bias(distances, r.query.device()))
    r.relative_bias = bias.to(dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32);
  if (const Tensor key = position->relative_embedding(distances)) r.relative_embedding = key.to(dtype);
}

AttentionLayer::AttentionLayer(std::string_view name, const AttentionSettings& settings,
                               const AttentionLayerOptions& options, const AttentionAbilities& abilities)
    : name_(name),
      settings_(settings),
      options_(options),
      key_heads_(options.key_heads ? options.key_heads : options.heads),
      head_size_(checked_head_size(options)),
      output_(query_width(options), options.width,
              {.bias = options.bias,
               .weight = options.initial_weights.joining(query_width(options), options.width, options.layers)}) {
  check_abilities(name, settings, options, abilities);
  const int64_t width = options.width, queries = query_width(options),
                keys = product_of_sizes(name, {key_heads_, head_size_});
  const auto linear = [&](std::vector<int64_t> parts) {
    const Initialization weight = options.initial_weights.inner(width, queries, options.layers);
    return Linear::Options{.bias = options.bias, .weight = weight, .parts = std::move(parts)};
  };
  if (options.memory_width) {
    query_ = std::make_unique<Linear>(width, queries, linear({}));
    key_value_ = std::make_unique<Linear>(options.memory_width, sum_of_sizes(name, {keys, keys}), linear({keys, keys}));
  } else {
    query_key_value_ =
        std::make_unique<Linear>(width, sum_of_sizes(name, {queries, keys, keys}), linear({queries, keys, keys}));
  }
  if (options.query_key_bias)
    query_bias_ = Parameter(Shape{queries}, constant(0)), key_bias_ = Parameter(Shape{keys}, constant(0));
  if (given(settings.qk_norm)) {
    query_norm_ = make_normalization(settings.qk_norm, {.width = head_size_, .bias = false});
    key_norm_ = make_normalization(settings.qk_norm, {.width = head_size_, .bias = false});
  }
  if (given(settings.gate)) {
    gate_function_.emplace(settings.gate);
    gate_ = std::make_unique<Linear>(width, queries, linear({}));
  }
  if (given(settings.span)) span_ = std::make_unique<Span>(settings.span, width, options.heads, options.context);
  if (given(settings.persistent)) slots_ = std::make_unique<Slots>(settings.persistent, key_heads_, head_size_);
  attend_to_self_ = settings.attend_to_self == "yes" || (settings.attend_to_self == "default" && !span_);
  if (!options.position) return;
  options.position->check_head_size(head_size_);
  if (options.context > 0) options.position->check_reach(within_window(options.context));
}
AttentionLayer::~AttentionLayer() = default;

AttentionOptions AttentionLayer::span_limits() const {
  AttentionOptions limits{.mask = {.attend_to_self = attend_to_self_}};
  if (span_) span_->limit(limits);
  return limits;
}
// Returns how many of these distances are visible under the span.
int64_t AttentionLayer::within_window(int64_t distances) const {
  const int64_t window = span_limits().mask.window;
  return window > 0 ? std::min(distances, window) : distances;
}

Tensor AttentionLayer::by_head(const Tensor& x, int64_t heads) const {
  return x.reshape(Shape{x.size(0), x.size(1), heads, head_size_});
}

Tensor with(const Parameter& bias, const Tensor& x) { return bias.value ? x + bias.value : x; }

// Returns the cached keys and values of the encoder output, normalized and rotated, or null. They
// are computed once, because the encoder output is constant while a cache lives.
const Cache::Entry* kept_memory(const AttentionLayer& attention, const Pass& pass) {
  if (!pass.cache) return nullptr;
  const auto found = pass.cache->entries.find(attention.unique_path());
  return found == pass.cache->entries.end() ? nullptr : &found->second;
}

AttentionInputs AttentionLayer::project(const Tensor& x, Pass& pass) {
  const int64_t queries = options_.heads * head_size_, keys = key_heads_ * head_size_;
  std::vector<Tensor> qkv;
  if (query_key_value_) {
    qkv = linear_split(x, query_key_value_->weight.value, query_key_value_->bias.value, {queries, keys, keys});
  } else {
    check(pass.memory && pass.memory.shape().rank() == 3 && pass.memory.size(2) == options_.memory_width, name_,
          ": cross attention needs pass.memory (batch, time, ", options_.memory_width, "), not ",
          pass.memory ? pass.memory.shape() : Shape());
    if (const Cache::Entry* const kept = kept_memory(*this, pass))
      return {.query = by_head(with(query_bias_, (*query_)(x, pass)), options_.heads),
              .key = kept->key,
              .value = kept->value};
    qkv = linear_split(pass.memory, key_value_->weight.value, key_value_->bias.value, {keys, keys});
    qkv.insert(qkv.begin(), (*query_)(x, pass));
  }
  AttentionInputs r{.query = by_head(with(query_bias_, qkv[0]), options_.heads),
                    .key = by_head(with(key_bias_, qkv[1]), key_heads_),
                    .value = by_head(qkv[2], key_heads_)};
  if (pass.cache && pass.cache->of_states && query_key_value_) go_on_with_stream(x, r, pass);
  return r;
}

// Attends as far as the current spans reach, but caches more, because the next optimizer step may
// lengthen a span: by less than 64 tokens at usable learning rates.
void AttentionLayer::go_on_with_stream(const Tensor& x, AttentionInputs& r, Pass& pass) {
  check_cache(name_, pass, options_.causal);
  check(span_ != nullptr, name_, ": a stream model needs a span; give one, as in ", name_, "(span=fixed(256))");
  const AttentionOptions limits = span_limits();
  // At distance `reach`, the far end of the ramp, a key has weight 0 but a gradient.
  const int64_t reach = span_->reach(limits), most = limits.mask.window - 1, before = pass.offset(),
                next = before + x.size(1);
  Tensor& kept = pass.cache->entries[unique_path()].states;
  Tensor all = x.detach();
  if (kept) {
    check(kept.size(0) == x.size(0), name_, ": the number of sequences (", x.size(0),
          ") must equal that of the cache (", kept.size(0), ")");
    const Tensor weight = query_key_value_->weight.value, bias = query_key_value_->bias.value;
    const int64_t keys = key_heads_ * head_size_, rows = weight.size(0), queries = rows - 2 * keys;
    const Tensor states = from_place(kept, first_reached(before, std::min(most, reach)), before);
    const std::vector<Tensor> kv =
        linear_split(states, weight.slice(queries, rows), bias ? bias.slice(queries, rows) : Tensor(), {keys, keys});
    r.key = concatenate({by_head(with(key_bias_, kv[0]), key_heads_), r.key}, 1);
    r.value = concatenate({by_head(kv[1], key_heads_), r.value}, 1);
    all = concatenate({kept, all}, 1);
  }
  kept = from_place(all, first_reached(next, std::min(most, reach + step_of_dropping)), next);
}

void AttentionLayer::add_terms(const Tensor& x, AttentionInputs& r, Pass& pass) const {
  add_distance_terms(options_.position, within_window(std::max(pass.offset() + r.query.size(1), r.key.size(1))), r);
  if (span_) span_->add_to(r, x, pass);
  if (slots_) {
    const SlotKeysAndValues slots = slots_->use();
    r.slot_key = slots.key, r.slot_value = slots.value;
  }
}

AttentionOptions AttentionLayer::options_of(const AttentionInputs& r, const Pass& pass) const {
  const bool cross = options_.memory_width != 0;
  const int64_t cached = cross ? 0 : r.key.size(1) - r.query.size(1);
  constexpr int64_t many = 1 << 28;  // further back than any window; positions of a long stream may exceed 2^29
  AttentionOptions o{.mask = {.causal = options_.causal && !cross,
                              .attend_to_self = attend_to_self_ || cross,
                              .query_offset = cached,
                              .keys_dropped = cross ? 0 : std::min(pass.offset() - cached, many),
                              .lengths = cross ? pass.memory_lengths : pass.lengths,
                              .query_lengths = pass.lengths,
                              .query_document_ids = pass.document_ids,
                              .key_document_ids = cross ? pass.memory_document_ids : pass.document_ids},
                     .scale = settings_.scale > 0 ? settings_.scale : 1 / std::sqrt(static_cast<double>(head_size_)),
                     .dropout = pass.training ? settings_.dropout : 0,
                     .random_key = pass.training && settings_.dropout > 0 ? random_key(pass) : LateKey{}};
  check(
      !cross || bool(pass.document_ids) == bool(pass.memory_document_ids), name_,
      ": cross attention attends within a token's own document, so pass.document_ids and pass.memory_document_ids must "
      "be given together; only ",
      pass.document_ids ? "the first" : "the second", " is given");
  if (span_) span_->limit(o);
  return o;
}

// Returns the separate attention calls: one over all keys or, with split slots, one over the
// context and one over the slots.
std::vector<AttentionLayer::Part> AttentionLayer::parts_of(const AttentionInputs& r, const AttentionOptions& o) const {
  Part context{r, o};
  context.options.hooked_path = path(), context.options.hooked_name = "scores";
  if (!slots_ || !slots_->split()) return {context};
  context.inputs.slot_key = context.inputs.slot_value = {};
  const AttentionInputs slots{.query = r.query,
                              .key = Tensor::empty_like(r.key, r.key.shape().with(1, 0)),
                              .value = Tensor::empty_like(r.value, r.value.shape().with(1, 0)),
                              .slot_key = r.slot_key,
                              .slot_value = r.slot_value};
  const AttentionOptions of_slots{.mask = {.causal = false, .query_lengths = o.mask.query_lengths},
                                  .scale = o.scale,
                                  .soft_cap = o.soft_cap,
                                  .dropout = o.dropout,
                                  .random_key = o.random_key.derive("slots"),
                                  .hooked_path = path(),
                                  .hooked_name = "slot_scores"};
  return {context, {slots, of_slots}};
}

// Returns each part's weights or their replacements; hooks see them joined. Empty: no weights.
std::vector<Tensor> AttentionLayer::hooked_weights(const std::vector<Part>& parts) {
  std::vector<Tensor> all;
  for (const Part& part : parts) all.push_back(weights(part.inputs, part.options));
  if (!all[0]) return {};
  const int64_t keys = all[0].size(3);
  const Tensor shown = hook(path(), "weights", all.size() == 1 ? all[0] : concatenate(all, 3));
  if (all.size() == 1) return {shown};
  return {slice(shown, 3, 0, keys), slice(shown, 3, keys, shown.size(3))};
}

void AttentionLayer::show_rows(const Tensor& w, const AttentionInputs& r, const AttentionOptions& o) const {
  const Tensor visible = broadcast_to(attention_mask(r, o), w.shape());
  hook(path(), "visible", visible);
  const AttentionOutput rows = row_statistics(w, visible);
  const Tensor some = sum(visible, {-1}), none = Tensor::full_like(w, {1}, NAN);
  const auto show = [&](const char* name, const Tensor& x) { hook(path(), name, where(some, x, none)); };
  show("row_sum", rows.sum), show("row_entropy", rows.entropy);
  show("row_zero_fraction", rows.zero_share), show("row_max", rows.maximum);
}

Tensor AttentionLayer::read_all(const AttentionInputs& r, const AttentionOptions& o, Pass& pass) {
  const std::vector<Part> parts = parts_of(r, o);
  // Uses |= instead of ||, because each call must offer its name to the hooks.
  bool scores = false, rows = false, looked_at = is_hooked(path(), "weights");
  for (const Part& part : parts) scores |= is_hooked(path(), part.options.hooked_name);
  for (const char* name : {"visible", "row_sum", "row_entropy", "row_zero_fraction", "row_max"})
    rows |= is_hooked(path(), name);
  looked_at |= scores || rows;
  bool replaced = is_replaced(path(), "weights");
  for (const Part& part : parts) replaced |= is_replaced(path(), part.options.hooked_name);
  std::vector<Tensor> w;
  if (looked_at) {
    std::optional<NoGrad> guard;
    if (!replaced) guard.emplace();
    w = hooked_weights(parts);
    const NoGrad no_history;
    if (rows && !w.empty()) show_rows(w.size() == 1 ? w[0] : concatenate(w, 3), r, o);
  }
  check(!replaced || !w.empty(), name_,
        ": has no attention weights, so a hook cannot replace them; use softmax or pointwise");
  Tensor all;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& [inputs, options] = parts[i];
    const Tensor y = replaced ? finish(read_values(w[i], inputs, options)) : read(inputs, options, pass);
    all = all ? all + y : y;
  }
  return all;
}

Tensor AttentionLayer::read_heads(AttentionInputs r, const Tensor& x, Pass& pass) {
  const bool cross = options_.memory_width != 0, known = cross && kept_memory(*this, pass);
  if (!cross) check_cache(name_, pass, options_.causal);
  if (query_norm_) {
    r.query = (*query_norm_)(r.query, pass);
    if (!known) r.key = (*key_norm_)(r.key, pass);
  }
  if (options_.position) {
    r.query = options_.position->rotate(r.query, pass);
    Pass of_memory;
    of_memory.document_ids = pass.memory_document_ids;
    if (!known) r.key = options_.position->rotate(r.key, cross ? of_memory : pass);
  }
  if (cross && pass.cache && !known) pass.cache->entries[unique_path()] = {r.key.detach(), r.value.detach()};
  r.query = hook(path(), "query", r.query), r.key = hook(path(), "key", r.key);
  r.value = hook(path(), "value", r.value);
  if (!cross && !(pass.cache && pass.cache->of_states))
    continue_from_cache(*this, r, pass, pass.cache && span_ ? span_->reach(span_limits()) : 0);
  add_terms(x, r, pass);
  const AttentionOptions o = options_of(r, pass);
  const Tensor read = hook(path(), "head_output", read_all(r, o, pass));
  const Tensor y = read.reshape(Shape{read.size(0), read.size(1), read.size(2) * read.size(3)});
  return gate_ ? gate_function_->gate((*gate_)(x, pass), y) : y;
}

Tensor AttentionLayer::forward_onto(const Tensor& x, const Tensor& residual, Pass& pass) {
  const Tensor y = read_heads(project(x, pass), x, pass);
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
  v("gate", gate_);
  v("span", span_);
  v("slots", slots_);
  v("output", output_);
}

}  // namespace orrery::nn
