#include "models/data/json_members.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/types/check.h"
#include "models/data/tokenizer.h"
#include "models/formats/gzip.h"

namespace orrery::models {

const SortedJson& item(const SortedJson& object, const char* key) {
  static const SortedJson null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

void must_be(const SortedJson& object, const char* key, std::initializer_list<SortedJson> harmless,
             const std::string& what) {
  const SortedJson& value = item(object, key);
  if (value.is_null() || std::find(harmless.begin(), harmless.end(), value) != harmless.end()) return;
  std::string supported;
  for (const SortedJson& each : harmless) supported += json_text(each) + " or ";
  throw TokenizerNotSupported(text(what, ": \"", key, "\" is ", shortened(value),
                                   ", which is not supported; use a tokenizer with ", supported, "null"));
}

SortedJson object_in(const std::string& folder, const char* name, std::string& path) {
  path = find_data_file(folder, {name});
  if (path.empty()) return SortedJson::object();
  SortedJson json = parse_large_json(read_data_file(path, max_settings_bytes), path);
  check(json.is_object(), path, ": the file must be an object {...}");
  return json;
}

}  // namespace orrery::models
