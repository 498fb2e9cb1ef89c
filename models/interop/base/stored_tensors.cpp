#include "models/interop/base/stored_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "engine/settings/registry.h"
#include "engine/system/files.h"
#include "models/formats/gzip.h"
#include "models/formats/json.h"
#include "models/training/run_folder.h"

namespace orrery::models {
namespace {

constexpr const char *single_name = "model.safetensors", *index_name = "model.safetensors.index.json";

void append(std::vector<StoredTensor>& all, const std::string& path) {
  refuse_pickles(path);
  const auto file = std::make_shared<const SafetensorsReader>(path);
  for (size_t i = 0; i < file->entries().size(); ++i) {
    const TensorEntry& entry = file->entries()[i];
    all.push_back({entry.name, entry.dtype, {entry.shape.begin(), entry.shape.end()}, {}, {}, file, i});
  }
}

// Files of an index, each once, and the file of each tensor.
struct Index {
  std::set<std::string> files;
  std::map<std::string, std::string> file_of;
};
Index read_index(const std::string& path) {
  const SortedJson json = parse_large_json(read_data_file(path, max_index_bytes), path);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  check(json.is_object() && map != json.end() && map->is_object(), path,
        ": object 'weight_map' is missing; it must map names of tensors to files");
  Index index;
  for (const auto& [name, file] : map->items()) {
    check(file.is_string(), path, ": the file of '", name, "' is ", shortened(file), "; it must be text in quotes");
    const auto& text = file.get_ref<const std::string&>();
    check(!text.empty() && text.find_first_of("/\\") == std::string::npos, path, ": '", text, "', the file of '", name,
          "', must be in the same folder; give its name without a folder");
    index.files.insert(text), index.file_of[name] = text;
  }
  return index;
}

template <class T, class F>
void each_value_as(const StoredTensor& x, const F& f) {
  const std::byte* const begin = x.tensor ? static_cast<const std::byte*>(x.tensor.raw()) : x.bytes.data();
  const size_t count = (x.tensor ? static_cast<size_t>(x.tensor.bytes()) : x.bytes.size()) / sizeof(T);
  for (size_t i = 0; i < count; ++i) {
    T number;
    std::memcpy(&number, begin + i * sizeof(T), sizeof(T));
    f(number);
  }
}

// Calls f(value) for each value in the file's type; returns false if the dtype is not supported.
template <class F>
bool each_value(const StoredTensor& x, const F& f) {
  if (x.tensor && x.tensor.dtype() == Dtype::f32) return each_value_as<float>(x, f), true;
  if (x.tensor && x.tensor.dtype() == Dtype::f64) return each_value_as<double>(x, f), true;
  if (x.tensor && x.tensor.dtype() == Dtype::i32) return each_value_as<int32_t>(x, f), true;
  if (x.tensor) return each_value_as<bf16>(x, [&](bf16 number) { f(static_cast<float>(number)); }), true;
  if (x.dtype == "BOOL" || x.dtype == "U8") return each_value_as<uint8_t>(x, f), true;
  if (x.dtype == "I8") return each_value_as<int8_t>(x, f), true;
  if (x.dtype == "I16") return each_value_as<int16_t>(x, f), true;
  if (x.dtype == "U16") return each_value_as<uint16_t>(x, f), true;
  if (x.dtype == "U32") return each_value_as<uint32_t>(x, f), true;
  if (x.dtype == "I64") return each_value_as<int64_t>(x, f), true;
  if (x.dtype == "U64") return each_value_as<uint64_t>(x, f), true;
  return false;
}

}  // namespace

StoredTensor with_values(const StoredTensor& tensor) {
  StoredTensor read = tensor;
  if (!tensor.file) return read;
  const TensorEntry& entry = tensor.file->entries()[tensor.entry];
  if (dtype_of_name(entry.dtype))
    read.tensor = tensor.file->tensor(entry);
  else
    read.bytes = tensor.file->bytes(entry);
  read.file = nullptr;
  return read;
}

std::string shape_text(const StoredTensor& tensor) {
  std::vector<std::string> sizes;
  for (const int64_t size : tensor.shape) sizes.push_back(std::to_string(size));
  return "(" + join(sizes) + ")";
}

bool is_pickle(const std::string& path) {
  if (!file_exists(path) || folder_exists(path)) return false;
  std::array<char, 9> first = {};
  const size_t known = FileReader(path).read_up_to(std::as_writable_bytes(std::span(first)));
  const std::string_view begin(first.data(), known);
  if (begin.starts_with("PK\3\4")) return true;
  // A safetensors header's length (8 bytes) may be these bytes, but the header's brace follows.
  return begin.starts_with('\x80') && known > 1 && first[1] >= 2 && first[1] <= 5 && first[8] != '{';
}

void refuse_pickles(const std::string& path) {
  const bool folder = folder_exists(path);
  // Next to safetensors weights, such a file is not the weights (training_args.bin, for example).
  if (folder && (file_exists(path + "/" + single_name) || file_exists(path + "/" + index_name))) return;
  const auto named_so = [](const std::string& file) {
    constexpr const char* endings[] = {".bin", ".bin.index.json", ".pt", ".pth", ".ckpt"};
    return std::any_of(std::begin(endings), std::end(endings), [&](const char* end) { return file.ends_with(end); });
  };
  for (const std::string& file : folder ? files_in(path) : std::vector<std::string>{path})
    check(folder ? !named_so(file) : !is_pickle(file), "read: ", file,
          " is in PyTorch's pickle format, which can run any program and is not read; convert it to ", single_name,
          ", for a folder of transformers: python3 -c \"from transformers import AutoModelForCausalLM as M; "
          "M.from_pretrained('FOLDER').save_pretrained('NEW')\" (image models: AutoModelForImageClassification)");
}

std::vector<StoredTensor> stored_tensors_of_folder(const std::string& folder,
                                                   const std::set<std::string>& optional_names) {
  std::vector<StoredTensor> all;
  const std::string single = folder + "/" + single_name, index_path = find_data_file(folder, {index_name});
  if (file_exists(single)) {
    append(all, single);
    return all;
  }
  if (index_path.empty()) refuse_pickles(folder);
  check(!index_path.empty(), "read: ", folder, " has neither ", single_name, " nor ", index_name,
        "; give a folder with one of them");
  const Index index = read_index(index_path);
  std::set<std::string> seen;
  for (const std::string& file : index.files) {
    const size_t before = all.size();
    append(all, folder + "/" + file);
    for (size_t i = before; i < all.size(); ++i)
      check(seen.insert(all[i].name).second, "read: ", folder, ": tensor '", all[i].name,
            "' is in two files, the second is ", file, "; remove it from one of them");
  }
  for (const auto& [name, file] : index.file_of)
    check(seen.contains(name) || optional_names.contains(name), "read: ", index_path, ": tensor '", name,
          "' is not in ", file, "; get the index and the files again");
  return all;
}

std::vector<StoredTensor> stored_tensors(const std::string& path) {
  std::vector<StoredTensor> all;
  std::string file = folder_exists(path) ? path + "/" + weights_name : path;
  if (folder_exists(path) && !file_exists(file)) {
    const std::string latest = latest_checkpoint(path, true);
    if (latest.empty()) return stored_tensors_of_folder(path);
    file = latest + "/" + weights_name;
  }
  append(all, file);
  return all;
}

int64_t count_of(const StoredTensor& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
}

ValueRange range_of(const StoredTensor& tensor) {
  ValueRange range{.low = std::numeric_limits<double>::infinity(), .high = -std::numeric_limits<double>::infinity()};
  each_value(tensor, [&](auto stored) {
    const auto number = static_cast<double>(stored);
    if (!std::isfinite(number)) return void(++range.not_finite);
    ++range.finite;
    range.low = std::min(range.low, number), range.high = std::max(range.high, number);
    const auto count = static_cast<double>(range.finite);
    const double step = (number - range.mean) / count;
    range.mean += std::isfinite(step) ? step : number / count - range.mean / count;  // the difference may overflow
  });
  if (range.finite == 0) range.low = range.high = range.mean = std::numeric_limits<double>::quiet_NaN();
  return range;
}

Tensor as_tokens(const StoredTensor& tensor) {
  std::vector<int32_t> tokens;
  const bool plain = each_value(tensor, [&](auto number) {
    const auto whole = static_cast<double>(number);
    check(whole >= 0 && whole <= std::numeric_limits<int32_t>::max() && whole == std::floor(whole), "read: '",
          tensor.name, "' has the value ", whole, ", which is not a token id; use integers from 0 to 2147483647");
    tokens.push_back(static_cast<int32_t>(whole));
  });
  check(plain, "read: '", tensor.name, "' has dtype ", tensor.dtype, "; tokens must be integers, such as I32 or I64");
  Shape shape;
  for (const int64_t size : tensor.shape) shape.append(size);
  return Tensor::from(shape, tokens);
}

}  // namespace orrery::models
