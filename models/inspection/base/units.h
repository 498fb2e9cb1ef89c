// Units: hidden units of feed-forwards and persistent slots of attentions. Both are key-value
// memories (Geva et al. 2020, arXiv:2012.14913; Sukhbaatar et al. 2019, arXiv:1907.01470): a
// position gives a unit some value, and the unit adds its vector times this value to the output.
#pragma once

#include "models/inspection/base/edited_run.h"

namespace orrery::models {

class UnitGroup {
 public:
  std::string path;  // "blocks.0.feed_forward"
  std::string name;  // name of the hook: "blocks.0.feed_forward.hidden", "blocks.0.attention.weights"
  Tensor values;     // (positions, units), f32 or f64, on the CPU
  int64_t heads = 1;
  int64_t units() const { return values.size(1); }
  std::string unit(int64_t index) const;  // "unit 17"; for slots "slot 3" or, with several heads, "head 1 slot 3"
  void check_unit(int64_t index) const;   // throws if the unit does not exist
  // Return the edit that sets the unit, or all units, to this value at every position.
  ValueEdit set(int64_t unit, double value) const;
  ValueEdit set_all(double value) const;

 private:
  friend std::vector<UnitGroup> capture_units(const InspectedExample& example);
  static UnitGroup of(const std::string& path, const std::string& name, const Tensor& value, int64_t keys);
  int64_t first_ = 0;  // column of the first unit: keys are before slots
  bool slots_ = false;
};

// Captures the units of feed-forwards and of attentions with slots, in order of execution.
std::vector<UnitGroup> capture_units(const InspectedExample& example);

}  // namespace orrery::models
