// What a model reads from its weights: the hidden units of feed-forwards, and the persistent slots of attentions, which
// are the same thing twice (Geva et al. 2020, arXiv:2012.14913; Sukhbaatar et al. 2019, arXiv:1907.01470).  A unit is
// opened by a place with some value and then says its vector.
#pragma once

#include "models/inspection/base/replacing.h"

namespace orrery::models {

class Memory {
 public:
  std::string path;  // "blocks.0.feed_forward"
  std::string name;  // of the hook: "blocks.0.feed_forward.hidden", "blocks.0.attention.weights"
  Tensor values;     // (places, units), f32 or f64, on the CPU
  int64_t heads = 1;
  int64_t units() const { return values.size(1); }
  std::string unit(int64_t index) const;  // "unit 17"; of slots "slot 3", or of several heads "head 1 slot 3"
  void check_unit(int64_t index) const;   // Error: there is no such unit
  // Gives the unit this value at every place, in numbers of the hook's shape.
  void set(const Shape& shape, std::vector<double>& numbers, int64_t unit, double value) const;
  void set_all(const Shape& shape, std::vector<double>& numbers, double value) const;  // every unit of it

 private:
  friend std::vector<Memory> see_memories(const Subject& subject);
  static Memory of(const std::string& path, const std::string& name, const Tensor& value, int64_t keys);
  int64_t first_ = 0;  // column of the first unit: keys stand before slots
  bool slots_ = false;
};

// In the order they act; of attentions those with slots.
std::vector<Memory> see_memories(const Subject& subject);

}  // namespace orrery::models
