// Positions: how a model knows where a token stands.  A position acts in one of three places: on the embedding, on
// queries and keys, or on the scores.  A model makes one and hands it to all its attentions, so that a learned table is
// shared by all heads and layers.
#pragma once

#include "nn/base/entry.h"
#include "nn/base/module.h"

namespace orrery::nn {

struct PositionOptions {
  int64_t context;  // the most positions
  int64_t width;
  int64_t heads = 1;
  int64_t head_size = 0;  // 0: width / heads
  bool causal = true;
  double table_std = 0.02;  // at which a table that is added to the embedding starts
};

class Position : public Module {
 public:
  // x (B, T, width), an embedding, with its positions added: learned, sinusoidal.
  Tensor forward(const Tensor& x, Pass&) override { return x; }
  // Queries or keys x (B, T, H, D), turned by their places in their documents: rotary.
  virtual Tensor rotate(const Tensor& x, Pass&) const { return x; }
  // Terms of the scores by the distance between query and key, 0 <= distance < `distances`
  // (nn/attentions/base/fused.h), of whatever floating dtype, on the device if they are constants; undefined if there
  // are none: alibi, relative.
  virtual Tensor relative_bias(int64_t /*distances*/, Device = Device::cpu) const { return {}; }  // (H, distances)
  virtual Tensor relative_embedding(int64_t /*distances*/) const { return {}; }                   // (distances, D)
  virtual bool acts_on_scores() const { return false; }
  // Errors if there are no terms for so many distances, or if queries of this size cannot be turned: attentions ask
  // when they are made.
  virtual void check_reach(int64_t /*distances*/) const {}
  virtual void check_head_size(int64_t /*size*/) const {}
};

using PositionEntry = Entry<Position, const PositionOptions&>;
Registry<PositionEntry>& positions();
std::unique_ptr<Position> make_position(const Spec& spec, const PositionOptions& options);

// The place of each token in its document, (B, T) i32; undefined if there are no documents, for then the places of
// every sequence are pass.offset(), pass.offset() + 1, ...  x is (B, T, ...).  Error: documents together with a cache.
Tensor places_of(const Tensor& x, const Pass& pass);

// Rows pass.offset(), pass.offset() + 1, ... of a table (places, C) for the tokens of x (B, T, ...): (T, C).
// Error, beginning with `name`: a place beyond the table.
Tensor next_rows(std::string_view name, const Tensor& table, const Tensor& x, const Pass& pass);
// The same, in x's dtype, but that places count within documents: (T, C), or (B, T, C) if there are documents.
Tensor rows_at_places(std::string_view name, const Tensor& table, const Tensor& x, const Pass& pass);

// Pairs of channels turned by an angle of each token: (a, b) -> (a cos - b sin, a sin + b cos).
// nn/positions/rotary.cpp.
struct Rotation {
  Tensor cosine, sine;       // (T, pairs) or (B, T, pairs), f64 for f64, else f32
  bool interleaved = false;  // pairs (2i, 2i + 1); otherwise (i, i + pairs)
};
Tensor rotate_pairs(const Tensor& x, const Rotation& rotation);  // x (B, T, H, D), 2 pairs <= D; the rest stays

#define REGISTER_POSITION(Type) \
  [[maybe_unused]] static const bool registered_##Type = ::orrery::nn::register_type<Type>(::orrery::nn::positions())

}  // namespace orrery::nn
