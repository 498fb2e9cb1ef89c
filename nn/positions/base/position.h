// Position encodings. A position acts on the embedding, on queries and keys, or on scores. A model
// makes one and passes it to all its attentions, so all heads and layers share a learned table.
#pragma once

#include "nn/base/entry.h"
#include "nn/base/module.h"

namespace orrery::nn {

struct PositionOptions {
  int64_t context;  // maximum number of positions
  int64_t width;
  int64_t heads = 1;
  int64_t head_size = 0;  // 0: width / heads
  bool causal = true;
  double table_std = 0.02;  // initial std of a table that is added to the embedding
};

class Position : public Module {
 public:
  // Returns the embedding x (B, T, width) with its positions added (learned, sinusoidal).
  Tensor forward(const Tensor& x, ForwardPass&) override { return x; }
  // Returns queries or keys x (B, T, H, D), rotated by their positions in documents (rotary).
  virtual Tensor rotate(const Tensor& x, ForwardPass&) const { return x; }
  // Return score terms by query-key distance, 0 <= distance < `distances`
  // (nn/attentions/base/fused.h), for alibi and relative; others return undefined tensors. Any
  // floating dtype; constants are on the device.
  virtual Tensor relative_bias(int64_t /*distances*/, Device = Device::cpu) const { return {}; }  // (H, distances)
  virtual Tensor relative_embedding(int64_t /*distances*/) const { return {}; }                   // (distances, D)
  virtual bool acts_on_scores() const { return false; }
  // Throw if some distances have no terms or queries of this size cannot be rotated. Attentions
  // call these when they are constructed.
  virtual void check_reach(int64_t /*distances*/) const {}
  virtual void check_head_size(int64_t /*size*/) const {}
};

using PositionEntry = Entry<Position, const PositionOptions&>;
Registry<PositionEntry>& positions();
std::unique_ptr<Position> make_position(const Spec& spec, const PositionOptions& options);  // "rotary(base=10000)"

// Returns token positions in documents, (B, T) i32, for x (B, T, ...). Undefined without documents:
// positions are pass.offset(), pass.offset() + 1, ... Throws for documents with a cache.
Tensor positions_of(const Tensor& x, const ForwardPass& pass);

// Returns rows pass.offset(), pass.offset() + 1, ... of a table (positions, C) for the tokens of
// x (B, T, ...): (T, C). Throws, with `name` in front, for positions beyond the table.
Tensor next_rows(std::string_view name, const Tensor& table, const Tensor& x, const ForwardPass& pass);
// Like next_rows in x's dtype, with positions per document: (T, C), or (B, T, C) with documents.
Tensor rows_at_positions(std::string_view name, const Tensor& table, const Tensor& x, const ForwardPass& pass);

// Rotation of channel pairs by an angle per token (nn/positions/rotary.cpp):
//   (a, b) -> (a cos - b sin, a sin + b cos)
struct Rotation {
  Tensor cosine, sine;       // (T, pairs) or (B, T, pairs), f64 for f64, else f32
  bool interleaved = false;  // pairs (2i, 2i + 1); otherwise (i, i + pairs)
};
Tensor rotate_pairs(const Tensor& x, const Rotation& rotation);  // x (B, T, H, D), 2 pairs <= D; other channels stay

#define REGISTER_POSITION(Type) \
  [[maybe_unused]] static const bool registered_##Type = ::orrery::nn::register_type<Type>(::orrery::nn::positions())

}  // namespace orrery::nn
