#include "engine/tensor/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "engine/system/files.h"
#include "engine/system/machine_memory.h"
#include "engine/types/ascii.h"

namespace orrery {
namespace {

static_assert(std::endian::native == std::endian::little, "the numbers of a file are little-endian");

constexpr uint64_t max_header_bytes = 100'000'000;  // the limit of the format
constexpr const char* copy_again = "; copy or download the file again";
constexpr size_t max_list_length = 64;  // numbers of a list, which take more memory than their text in the header

struct Header {
  std::vector<TensorEntry> entries;
  std::map<std::string, std::string> metadata;
};

void append_utf8(std::string& to, uint32_t point) {
  const auto byte = [&](uint32_t bits) { to.push_back(static_cast<char>(bits)); };
  if (point < 0x80) return byte(point);
  if (point < 0x800) return byte(0xC0 | point >> 6), byte(0x80 | (point & 0x3F));
  if (point < 0x10000) {
    byte(0xE0 | point >> 12);
  } else {
    byte(0xF0 | point >> 18);
    byte(0x80 | (point >> 12 & 0x3F));
  }
  byte(0x80 | (point >> 6 & 0x3F));
  byte(0x80 | (point & 0x3F));
}

// A parser of the header's JSON, which has only objects, strings and lists of whole numbers:
//   {"__metadata__": {"format": "pt"}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  Header read() {
    Header header;
    std::set<std::string> seen;
    object([&](const std::string& name) {
      if (!seen.insert(name).second) damaged("'" + name + "' occurs twice");
      if (name == "__metadata__") {
        object([&](const std::string& key) {
          if (!header.metadata.emplace(key, string()).second) damaged("its metadata has '" + key + "' twice");
        });
      } else {
        header.entries.push_back(entry(name));
      }
    });
    skip_space();
    if (at_ < text_.size()) damaged(text("the header continues after its end, at byte ", at_));
    return header;
  }

 private:
  TensorEntry entry(const std::string& name) {
    TensorEntry read{.name = name};
    std::vector<uint64_t> offsets;
    std::set<std::string> seen;
    object([&](const std::string& key) {
      if (!seen.insert(key).second) damaged("'" + name + "' has two fields " + key);
      if (key == "dtype") return void(read.dtype = string());
      if (key == "shape") return void(read.shape = numbers());
      if (key == "data_offsets") return void(offsets = numbers());
      damaged("'" + name + "' has an unknown field '" + key + "'");
    });
    if (seen.size() != 3 || offsets.size() != 2) damaged("'" + name + "' needs dtype, shape and two data_offsets");
    read.begin = offsets[0];
    read.end = offsets[1];
    return read;
  }

  template <class F>
  void object(const F& member) {
    expect('{');
    if (take('}')) return;
    do {
      const std::string key = string();
      expect(':');
      member(key);
    } while (take(','));
    expect('}');
  }

  std::vector<uint64_t> numbers() {
    std::vector<uint64_t> all;
    expect('[');
    if (take(']')) return all;
    do {
      skip_space();
      uint64_t number = 0;
      const size_t start = at_;
      for (; at_ < text_.size() && is_digit(text_[at_]); ++at_)
        if (__builtin_mul_overflow(number, uint64_t{10}, &number) ||
            __builtin_add_overflow(number, static_cast<uint64_t>(text_[at_] - '0'), &number))
          damaged(text("the number at byte ", start, " of the header is too large"));
      if (at_ == start) damaged(text("the header has no whole number at byte ", at_));
      if (all.size() == max_list_length)
        damaged(text("a list of the header has more than ", max_list_length, " numbers at byte ", start));
      all.push_back(number);
    } while (take(','));
    expect(']');
    return all;
  }

  std::string string() {
    expect('"');
    std::string read;
    while (at_ < text_.size() && text_[at_] != '"') {
      const char c = text_[at_++];
      if (static_cast<unsigned char>(c) < 0x20) damaged(text("the header has a control character at byte ", at_ - 1));
      if (c == '\\') {
        escape(read);
      } else {
        read.push_back(c);
      }
    }
    if (at_ >= text_.size()) damaged("the header ends inside a string");
    ++at_;
    return read;
  }

  void escape(std::string& to) {
    const char c = at_ < text_.size() ? text_[at_++] : '\0';
    static constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    if (const size_t i = letters.find(c); c != '\0' && i != std::string_view::npos) return to.push_back(meanings[i]);
    if (c != 'u') damaged(text("the header has an invalid escape sequence at byte ", at_));
    uint32_t point = hexadecimal();
    if (point >= 0xD800 && point < 0xDC00 && text_.substr(at_, 2) == "\\u") {  // the first half of a pair
      at_ += 2;
      const uint32_t low = hexadecimal();
      if (low < 0xDC00 || low > 0xDFFF) damaged(text("the header has an incomplete surrogate pair at byte ", at_));
      point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
    }
    if (point >= 0xD800 && point < 0xE000) damaged(text("the header has an incomplete surrogate pair at byte ", at_));
    append_utf8(to, point);
  }

  uint32_t hexadecimal() {  // four digits
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
      static constexpr std::string_view digits = "0123456789abcdef";
      const char c = at_ < text_.size() ? text_[at_++] : '\0';
      const size_t digit = digits.find(lower_case(c));
      if (digit == std::string_view::npos) damaged(text("the header has an invalid escape sequence at byte ", at_));
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    return value;
  }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) damaged(text("the header has no '", c, "' at byte ", at_));
  }
  [[noreturn]] void damaged(const std::string& what) const {
    fail("safetensors: ", path_, " is damaged: ", what, copy_again);
  }

  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
};

float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t{half} >> 15 << 31, exponent = half >> 10 & 31u, fraction = half & 1023u;
  if (exponent == 0) {  // zero, or a subnormal half: fraction 2^-24
    const float size = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -size : size;
  }
  const uint32_t widened = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | widened << 23 | fraction << 13);
}

const std::map<std::string, Dtype, std::less<>> dtypes = {
    {"F32", Dtype::f32}, {"F64", Dtype::f64}, {"BF16", Dtype::bf16}, {"I32", Dtype::i32}};

// The format's dtypes that tensors do not support, and the bits of a number of each.
const std::map<std::string, uint64_t, std::less<>> bits_of_others = {
    {"BOOL", 8}, {"U8", 8},   {"I8", 8},      {"F8_E4M3", 8}, {"F8_E5M2", 8},     {"F8_E8M0", 8},
    {"I16", 16}, {"U16", 16}, {"F16", 16},    {"U32", 32},    {"I64", 64},        {"U64", 64},
    {"C64", 64}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}};

uint64_t bits_of(const TensorEntry& entry, const std::string& path) {
  if (const auto known = dtypes.find(entry.dtype); known != dtypes.end())
    return 8 * static_cast<uint64_t>(bytes_of(known->second));
  const auto other = bits_of_others.find(entry.dtype);
  check(other != bits_of_others.end(), "safetensors: ", path, ": '", entry.name, "' has dtype ", entry.dtype,
        ", which the format does not define");
  return other->second;
}

// Sorts the tensors. Each must begin where the previous one ends, the last must end with the file.
void check_layout(std::vector<TensorEntry>& entries, uint64_t data_bytes, const std::string& path) {
  std::stable_sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;  // an empty tensor goes before one that begins there
  });
  uint64_t end = 0;
  for (const TensorEntry& e : entries) {
    uint64_t bits = bits_of(e, path);
    check(!dtype_of_name(e.dtype) || e.shape.size() <= Shape::max_rank, "safetensors: ", path, ": '", e.name, "' has ",
          e.shape.size(), " axes; at most ", Shape::max_rank, " are supported");
    bool overflow = false;
    for (const uint64_t size : e.shape) overflow |= size > INT64_MAX || __builtin_mul_overflow(bits, size, &bits);
    check(!overflow && bits % 8 == 0 && e.end >= e.begin && e.end - e.begin == bits / 8, "safetensors: ", path,
          " is damaged: the data_offsets of '", e.name, "' do not fit its shape", copy_again);
    check(e.begin == end, "safetensors: ", path, " is damaged: '", e.name, "' begins at byte ", e.begin,
          " of the data; it must begin at byte ", end, copy_again);
    end = e.end;
  }
  check(end <= data_bytes, "safetensors: ", path, " is cut short: its tensors need ", end, " bytes, but it has ",
        data_bytes, "; it was not copied or written completely");
  check(end == data_bytes, "safetensors: ", path, " is damaged: its data has ", data_bytes,
        " bytes, but its tensors need ", end, copy_again);
}

// Returns the bytes of the numbers in memory, where F16 becomes f32.
uint64_t bytes_in_memory(const TensorEntry& entry) {
  return (entry.end - entry.begin) * (entry.dtype == "F16" ? 2 : 1);
}

std::string json_string(std::string_view text) {
  std::string all = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') all.push_back('\\');
    if (static_cast<unsigned char>(c) < 0x20) {
      static constexpr char digits[] = "0123456789abcdef";
      all.append("\\u00").append(1, digits[c >> 4]).append(1, digits[c & 15]);
    } else {
      all.push_back(c);
    }
  }
  all.push_back('"');
  return all;
}

std::string header_of(std::span<const NamedTensor> tensors, const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  const auto add = [&](const auto&... parts) { header += text(parts...); };
  const char* between = "\"__metadata__\":{";
  for (const auto& [key, value] : metadata) {
    add(between, json_string(key), ':', json_string(value));
    between = ",";
  }
  if (!metadata.empty()) add('}');
  between = metadata.empty() ? "" : ",";
  std::set<std::string> names = {"__metadata__"};
  int64_t at = 0;
  for (const NamedTensor& each : tensors) {
    const Tensor& x = each.tensor;
    check(x.defined(), "safetensors: tensor '", each.name, "' is undefined; give it a value");
    check(names.insert(each.name).second, "safetensors: two tensors are named '", each.name, "'; names must differ");
    const auto dtype = std::find_if(dtypes.begin(), dtypes.end(), [&](const auto& d) { return d.second == x.dtype(); });
    add(between, json_string(each.name), ":{\"dtype\":", json_string(dtype->first), ",\"shape\":[");
    for (int axis = 0; axis < x.shape().rank(); ++axis) add(axis ? "," : "", x.size(axis));
    add("],\"data_offsets\":[", at, ',', at + x.bytes(), "]}");
    at += x.bytes();
    between = ",";
  }
  add('}');
  header.append((8 - header.size() % 8) % 8, ' ');
  return header;
}

// Calls use(bytes) for the parts of a file, in order.
template <class Use>
void each_part(std::span<const NamedTensor> tensors, const std::map<std::string, std::string>& metadata,
               const Use& use) {
  const std::string header = header_of(tensors, metadata);
  const uint64_t length = header.size();
  use(std::as_bytes(std::span(&length, 1)));
  use(std::as_bytes(std::span(header)));
  for (const NamedTensor& each : tensors) {
    const Tensor x = each.tensor.detach().to(Device::cpu);
    use(std::span(static_cast<const std::byte*>(x.raw()), static_cast<size_t>(x.bytes())));
  }
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  write_file_atomically(path, [&](FileWriter& file) {
    each_part(tensors, metadata, [&](std::span<const std::byte> bytes) { file.write(bytes); });
  });
}

void check_written(const std::string& path, std::span<const NamedTensor> tensors,
                   const std::map<std::string, std::string>& metadata) {
  FileReader file(path);
  std::vector<std::byte> chunk(size_t{1} << 16);
  each_part(tensors, metadata, [&](std::span<const std::byte> expected) {
    while (!expected.empty()) {
      const auto next = expected.first(std::min(expected.size(), chunk.size()));
      const bool same = file.read_up_to(std::span(chunk).first(next.size())) == next.size() &&
                        std::memcmp(chunk.data(), next.data(), next.size()) == 0;
      check(same, "safetensors: ", path, " differs from what was written when read back; check the disk");
      expected = expected.subspan(next.size());
    }
  });
  check(file.read_up_to(std::span(chunk).first(1)) == 0, "safetensors: ", path,
        " is longer than what was written when read back; check the disk");
}

std::optional<Dtype> dtype_of_name(std::string_view word) {
  if (word == "F16") return Dtype::f32;
  const auto found = dtypes.find(word);
  return found == dtypes.end() ? std::nullopt : std::optional(found->second);
}

SafetensorsReader::SafetensorsReader(const std::string& path) : path_(path), file_(path) {
  const uint64_t size = file_.size();
  check(size >= 8, "safetensors: ", path, " is cut short: ", size, " bytes, too few for a header");
  uint64_t length = 0;
  file_.read(std::as_writable_bytes(std::span(&length, 1)));
  constexpr uint64_t gzip_mark = 0x8b1f;  // at the start of a gzip file
  check(length <= max_header_bytes, "safetensors: ", path, " is not a safetensors file: its header would be ", length,
        " bytes long", (length & 0xffff) == gzip_mark ? "; it is compressed with gzip; decompress it first" : "");
  check(length <= size - 8, "safetensors: ", path, " is cut short: ", size, " bytes, but the header alone needs ",
        length + 8, "; it was not copied or written completely");
  check_memory("safetensors: the header of " + path, 10 * static_cast<double>(length), out_of_memory_advice());
  std::string text(length, '\0');
  file_.read(std::as_writable_bytes(std::span(text)));
  check(text.starts_with('{'), "safetensors: ", path, " is damaged: the header has no '{' at byte 0", copy_again);
  Header header = HeaderReader(text, path).read();
  first_number_ = 8 + length;
  check_layout(header.entries, size - first_number_, path);
  entries_ = std::move(header.entries), metadata_ = std::move(header.metadata);
}

void SafetensorsReader::check_memory_of(const TensorEntry& entry, uint64_t bytes) const {
  check_memory(text("safetensors: ", path_, ": '", entry.name, "'"), static_cast<double>(bytes),
               out_of_memory_advice());
}

Tensor SafetensorsReader::tensor(const TensorEntry& entry) const {
  check_memory_of(entry, bytes_in_memory(entry));
  Shape shape;
  for (const uint64_t size : entry.shape) shape.append(static_cast<int64_t>(size));
  const Tensor x = Tensor::empty(shape, *dtype_of_name(entry.dtype), Device::cpu);
  if (entry.dtype != "F16") {
    file_.read_at(first(entry), {static_cast<std::byte*>(x.mutable_raw()), static_cast<size_t>(x.bytes())});
    return x;
  }
  constexpr size_t at_once = size_t{1} << 18;
  const auto count = static_cast<size_t>(x.numel());
  std::vector<uint16_t> halves;
  for (size_t at = 0; at < count; at += halves.size()) {
    halves.resize(std::min(at_once, count - at));
    file_.read_at(first(entry) + at * sizeof(uint16_t), std::as_writable_bytes(std::span(halves)));
    std::transform(halves.begin(), halves.end(), x.mutable_data<float>() + at, half_to_float);
  }
  return x;
}

std::vector<std::byte> SafetensorsReader::bytes(const TensorEntry& entry) const {
  check_memory_of(entry, bytes_in_memory(entry));
  std::vector<std::byte> all(entry.end - entry.begin);
  file_.read_at(first(entry), all);
  return all;
}

SafetensorsFile read_safetensors(const std::string& path) {
  SafetensorsReader reader(path);
  uint64_t bytes = 0;
  for (const TensorEntry& entry : reader.entries()) bytes += bytes_in_memory(entry);
  check_memory("safetensors: " + path, static_cast<double>(bytes), out_of_memory_advice());
  SafetensorsFile result;
  for (const TensorEntry& entry : reader.entries()) {
    if (!dtype_of_name(entry.dtype)) {
      result.others.push_back({entry.name, entry.dtype, {entry.shape.begin(), entry.shape.end()}, reader.bytes(entry)});
      continue;
    }
    result.tensors.push_back({entry.name, reader.tensor(entry)});
    if (entry.dtype == "F16") result.halves.insert(entry.name);
  }
  result.metadata = reader.take_metadata();
  return result;
}

}  // namespace orrery
