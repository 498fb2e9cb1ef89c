// Safetensors files. Most mutations are valid files with one error, because a random change nearly
// always hits the header's length or its JSON.
#include "engine/tensor/safetensors.h"

#include <array>
#include <cstring>

#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;
using orrery::NamedTensor;
using orrery::SafetensorsFile;

bool same(const SafetensorsFile& a, const SafetensorsFile& b) {
  if (a.metadata != b.metadata || a.tensors.size() != b.tensors.size()) return false;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const orrery::Tensor &x = a.tensors[i].tensor, &y = b.tensors[i].tensor;
    if (a.tensors[i].name != b.tensors[i].name || x.shape() != y.shape() || x.dtype() != y.dtype()) return false;
    if (x.bytes() > 0 && std::memcmp(x.raw(), y.raw(), static_cast<size_t>(x.bytes())) != 0) return false;
  }
  return true;
}

void read(const std::string& folder, std::string_view bytes) {
  const std::string path = folder + "/given.safetensors", again = folder + "/again.safetensors";
  put(path, bytes);
  const SafetensorsFile given = orrery::read_safetensors(path);
  size_t held = 0;
  for (const NamedTensor& each : given.tensors) held += static_cast<size_t>(each.tensor.bytes());
  promise(held <= 2 * bytes.size(), "the tensors are larger than the file");
  orrery::write_safetensors(again, given.tensors, given.metadata);
  promise(same(given, orrery::read_safetensors(again)), "a written file is read back differently");
}

struct Entry {
  std::string name, dtype;
  std::vector<uint64_t> shape;
  uint64_t begin, end;
};

std::string list(const std::vector<uint64_t>& numbers) {
  std::string all = "[";
  for (const uint64_t number : numbers) all.append(all.size() > 1 ? "," : "").append(std::to_string(number));
  return all + "]";
}

uint64_t wrong_number(Random& random) {
  static constexpr std::array<uint64_t, 12> edges = {
      0,          1,          2,          255,        uint64_t{1} << 31, 1ull << 32,
      1ull << 61, 1ull << 62, 1ull << 63, UINT64_MAX, UINT64_MAX - 7,    1000000007};
  return random.one_in(3) ? random.below(64) : random.pick(edges);
}

std::string header(const std::vector<Entry>& entries, Random& random) {
  std::string json = "{";
  if (random.one_in(4)) json += R"("__metadata__":{"format":"pt","\u00e9\ud83d\ude00":"a\"\\b"},)";
  for (const Entry& e : entries)
    json += "\"" + e.name + "\":{\"dtype\":\"" + e.dtype + "\",\"shape\":" + list(e.shape) +
            ",\"data_offsets\":" + list({e.begin, e.end}) + "},";
  if (json.back() == ',') json.pop_back();
  json += "}";
  json.append(random.below(9), ' ');
  return json;
}

// Returns a file of up to five tensors: one in four is valid, the others have one wrong value.
std::string make(std::string_view, Random& random) {
  static const std::vector<std::pair<std::string, uint64_t>> dtypes = {
      {"F32", 4}, {"F64", 8}, {"BF16", 2}, {"F16", 2}, {"I32", 4}};
  static const std::vector<std::string> names = {
      "", "a", "blocks.0.weight", "__metadata__", "\\u0041", "\\n", "\xc3\xa9", "\\ud800", "\xff", "../../etc/passwd"};
  std::vector<Entry> entries;
  uint64_t at = 0;
  for (uint64_t i = random.below(6); i > 0; --i) {
    const auto [dtype, width] = random.pick(dtypes);
    Entry entry{"t" + std::to_string(i), dtype, {}, at, at};
    uint64_t numbers = 1;
    for (uint64_t axis = random.below(5); axis > 0; --axis) {
      entry.shape.push_back(random.one_in(10) ? 0 : 1 + random.below(4));
      numbers *= entry.shape.back();
    }
    at = entry.end = at + width * numbers;
    entries.push_back(entry);
  }
  if (!entries.empty() && !random.one_in(4)) {
    Entry& wrong = entries[random.below(entries.size())];
    switch (random.below(6)) {
      case 0:
        wrong.name = random.pick(names);
        break;
      case 1:
        wrong.dtype = random.one_in(2) ? "F8_E4M3" : random.pick(dtypes).first;
        break;
      case 2:
        wrong.shape.insert(wrong.shape.begin() + static_cast<int64_t>(random.below(wrong.shape.size() + 1)),
                           wrong_number(random));
        break;
      case 3:
        if (!wrong.shape.empty()) wrong.shape[random.below(wrong.shape.size())] = wrong_number(random);
        break;
      case 4:
        wrong.begin = wrong_number(random);
        break;
      default:
        wrong.end = wrong_number(random);
    }
  }
  const std::string json = header(entries, random);
  uint64_t length = json.size();
  if (random.one_in(16)) length = wrong_number(random);
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  bytes += json;
  if (random.one_in(16)) at = random.below(at + 9);
  for (uint64_t i = 0; i < at; ++i) bytes.push_back(static_cast<char>(random.next()));
  return bytes;
}

REGISTER_FORMAT(safetensors,
                {.name = "safetensors",
                 .readers = {"engine/tensor/safetensors.cpp", "engine/tensor/safetensors.h"},
                 .read = read,
                 .memory_multiple = 32,
                 .memory_base = 1 << 18,
                 .words = {"\"dtype\":", "\"shape\":", "\"data_offsets\":", "\"__metadata__\":", "\"F16\"", "\"BF16\"",
                           "\"I32\"", "{", "}", "[", "]", ",", ":", "\"", "\\u0000", "\\ud800"},
                 .mutate = make});

}  // namespace
