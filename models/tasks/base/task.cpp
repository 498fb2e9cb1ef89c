#include "models/tasks/base/task.h"

#include <algorithm>

namespace orrery::models {

Registry<TaskClass>& tasks() {
  static Registry<TaskClass> all("task");
  return all;
}

int64_t count_targets(const Tensor& targets) {
  const int32_t* const first = targets.data<int32_t>();
  return std::count_if(first, first + targets.numel(), [](int32_t target) { return target >= 0; });
}

}  // namespace orrery::models
