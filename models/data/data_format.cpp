#include "models/data/data_format.h"

namespace orrery::models {

Registry<DataFormat>& data_formats() {
  static Registry<DataFormat> all("data");
  return all;
}

}  // namespace orrery::models
