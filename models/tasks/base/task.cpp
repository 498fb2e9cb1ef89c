#include "models/tasks/base/task.h"

namespace orrery::models {

Registry<TaskClass>& tasks() {
  static Registry<TaskClass> all("task");
  return all;
}

}  // namespace orrery::models
