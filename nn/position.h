// Positions: how a model knows where a token stands.  A position acts in one of three places: on the embedding, on
// queries and keys, or on the scores.  A model makes one and hands it to all its attentions, so that a learned table is
// shared by all heads and layers.
#pragma once

#include "nn/entry.h"
#include "nn/module.h"

namespace orrery::nn {

struct PositionOptions {
  int64_t context;  // the most positions
  int64_t width;
  int64_t heads = 1;
  int64_t head_size = 0;  // 0: width / heads
  bool causal = true;
};

class Position : public Module {
 public:
  // x (B, T, width), an embedding, with its positions added: learned, sinusoidal.
  Tensor forward(const Tensor& x, Pass&) override { return x; }
  // Queries or keys x (B, T, H, D), turned by their places: rotary.
  virtual Tensor rotate(const Tensor& x, Pass&) const { return x; }
  // Terms of the scores by the distance between query and key, 0 <= distance < `distances` (nn/attend.h); undefined if
  // there are none: alibi, relative.
  virtual Tensor distance_bias(int64_t /*distances*/) const { return {}; }  // (H, distances)
  virtual Tensor distance_key(int64_t /*distances*/) const { return {}; }   // (distances, D)
  virtual bool acts_on_scores() const { return false; }
};

using PositionEntry = Entry<Position, const PositionOptions&>;
Registry<PositionEntry>& positions();
std::unique_ptr<Position> make_position(const Spec& spec, const PositionOptions& options);

// The place of each token in its document, (B, T) i32, counted from pass.offset() on; undefined if there are no
// documents, for then the places of every sequence are offset, offset + 1, ...
Tensor places_of(const Tensor& x, const Pass& pass);

#define REGISTER_POSITION(Type) \
  [[maybe_unused]] static const bool registered_##Type = ::orrery::nn::register_type<Type>(::orrery::nn::positions())

}  // namespace orrery::nn
