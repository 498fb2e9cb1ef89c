// llama2.c's .bin: a header of 32-bit integers, then all weights in f32, layer by layer for each kind of tensor.
// https://github.com/karpathy/llama2.c: run.c reads version 0, export.py writes 0 and 1.
//   version 0   dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size (negative: separate head), seq_len
//               E, N_attention, W_q, W_k, W_v, W_o, N_feed_forward, W_gate, W_down, W_up, N, angles, [W_head]
//   version 1   "ak42" and 1, these 7 integers, a byte that is 1 if the head is the embedding; 256 bytes in all
//               N_attention, N_feed_forward, N, E, W_q, W_k, W_v, W_o, W_gate, W_down, W_up, [W_head]
// A tokenizer.bin next to it is its tokenizer. Adjacent channels are rotated together (interleaved
// rotary); the base is 10,000, epsilon is 1e-5.
#include <array>
#include <cstdlib>
#include <filesystem>

#include "engine/system/files.h"
#include "engine/system/machine_memory.h"
#include "models/architectures/gpt.h"
#include "models/formats/gzip.h"
#include "models/interop/base/weight_format.h"

namespace orrery::models {
namespace {

constexpr uint32_t magic = 0x616b3432;  // "ak42"
constexpr uint64_t header_bytes_of_version_1 = 256;

struct Header {
  int version = 0;
  int64_t width = 0, d_ff = 0, layers = 0, heads = 0, kv_heads = 0, vocabulary = 0, context = 0;
  bool tied = true;
  int64_t head_size() const { return width / heads; }
};

Header read_header(FileReader& file, const std::string& path) {
  Header h;
  std::array<int32_t, 7> numbers{};
  const auto read = [&](auto& to) { file.read(std::as_writable_bytes(std::span(to))); };
  std::array<int32_t, 2> first{};
  read(first);
  if (static_cast<uint32_t>(first[0]) == magic) {
    h.version = first[1];
    check(h.version == 1, "llama2c: ", path, " has version ", h.version, h.version == 2 ? " (8-bit weights)" : "",
          "; supported versions: 0 and 1");
    read(numbers);
    std::array<uint8_t, header_bytes_of_version_1 - 36> rest{};
    read(rest);
    h.tied = rest[0] != 0;
  } else {
    std::array<int32_t, 5> rest{};
    read(rest);
    numbers = {first[0], first[1], rest[0], rest[1], rest[2], rest[3], rest[4]};
    h.tied = numbers[5] > 0;
  }
  h.width = numbers[0], h.d_ff = numbers[1], h.layers = numbers[2], h.heads = numbers[3], h.kv_heads = numbers[4];
  h.vocabulary = std::abs(static_cast<int64_t>(numbers[5])), h.context = numbers[6];
  const bool valid = h.width >= 1 && h.d_ff >= 1 && h.layers >= 1 && h.layers <= 4096 && h.heads >= 1 &&
                     h.kv_heads >= 1 && h.vocabulary >= 1 && h.context >= 1 && h.context <= 16777216 &&
                     h.width % h.heads == 0 && h.heads % h.kv_heads == 0 && h.width <= 65536 && h.d_ff <= 262144 &&
                     h.vocabulary <= 1048576;
  check(valid, "llama2c: ", path, " is damaged or not a llama2.c file: its header has n_layers ", h.layers, ", dim ",
        h.width, ", hidden_dim ", h.d_ff, ", n_heads ", h.heads, ", n_kv_heads ", h.kv_heads, ", vocab_size ",
        h.vocabulary, ", seq_len ", h.context);
  return h;
}

struct Kind {  // consecutive tensors of one kind
  std::string name;
  int64_t count;
  std::vector<int64_t> shape;
};
Shape shape_of(const Kind& kind) {
  Shape shape;
  for (const int64_t size : kind.shape) shape.append(size);
  return shape;
}
std::vector<Kind> kinds_of(const Header& h) {
  const int64_t keys = h.kv_heads * h.head_size(), c = h.width, n = h.layers;
  const Kind table{"E", 1, {h.vocabulary, c}}, attention_norm{"N_attention", n, {c}}, final_norm{"N", 1, {c}},
      feed_forward_norm{"N_feed_forward", n, {c}}, head{"W_head", 1, {h.vocabulary, c}};
  const std::vector<Kind> attention = {
      {"W_q", n, {c, c}}, {"W_k", n, {keys, c}}, {"W_v", n, {keys, c}}, {"W_o", n, {c, c}}};
  const std::vector<Kind> feed_forward = {
      {"W_gate", n, {h.d_ff, c}}, {"W_down", n, {c, h.d_ff}}, {"W_up", n, {h.d_ff, c}}};
  std::vector<Kind> all;
  const auto add = [&](const std::vector<Kind>& some) { all.insert(all.end(), some.begin(), some.end()); };
  if (h.version == 0) {
    add({table, attention_norm}), add(attention), add({feed_forward_norm}), add(feed_forward), add({final_norm});
    all.push_back({"angles", 2, {h.context, h.head_size() / 2}});
  } else {
    add({attention_norm, feed_forward_norm, final_norm, table}), add(attention), add(feed_forward);
  }
  if (!h.tied) add({head});
  return all;
}

std::string name_of(const std::string& kind, int64_t i) { return text(kind, ".", i); }

std::vector<StoredTensor> read_tensors(FileReader& file, const Header& h, const std::string& path) {
  uint64_t due = h.version == 0 ? 28 : header_bytes_of_version_1;
  const auto numbers = [](const Kind& kind) { return shape_of(kind).numel(); };
  for (const Kind& kind : kinds_of(h)) due += static_cast<uint64_t>(kind.count * numbers(kind)) * sizeof(float);
  check(file.size() == due, "llama2c: ", path, " has ", file.size(), " bytes, but its header (n_layers ", h.layers,
        ", dim ", h.width, ", vocab_size ", h.vocabulary, ") requires ", due, "; get the file again");
  check_memory("llama2c: " + path, static_cast<double>(due), out_of_memory_advice());
  std::vector<StoredTensor> all;
  for (const Kind& kind : kinds_of(h))
    for (int64_t i = 0; i < kind.count; ++i) {
      StoredTensor stored{
          name_of(kind.name, i), "F32", kind.shape, Tensor::empty(shape_of(kind), Dtype::f32, Device::cpu), {}};
      file.read({static_cast<std::byte*>(stored.tensor.mutable_raw()), static_cast<size_t>(stored.tensor.bytes())});
      all.push_back(std::move(stored));
    }
  return all;
}

std::vector<TensorMapping> mappings_of(const Header& h) {
  const int64_t keys = h.kv_heads * h.head_size();
  std::vector<TensorMapping> all = {{.target = "token_embedding.weight", .sources = {"E.0"}},
                                    {.target = "norm.weight", .sources = {"N.0"}},
                                    {.target = "head.weight", .sources = {"W_head.0"}}};
  for (int64_t i = 0; i < h.layers; ++i) {
    const std::string block = text("blocks.", i, ".");
    all.push_back({.target = block + "attention_norm.weight", .sources = {name_of("N_attention", i)}});
    all.push_back({.target = block + "attention.query_key_value.weight",
                   .sources = {name_of("W_q", i), name_of("W_k", i), name_of("W_v", i)},
                   .rows = {h.width, keys, keys}});
    all.push_back({.target = block + "attention.output.weight", .sources = {name_of("W_o", i)}});
    all.push_back({.target = block + "feed_forward_norm.weight", .sources = {name_of("N_feed_forward", i)}});
    all.push_back({.target = block + "feed_forward.input.weight",
                   .sources = {name_of("W_gate", i), name_of("W_up", i)},
                   .rows = {h.d_ff, h.d_ff}});
    all.push_back({.target = block + "feed_forward.output.weight", .sources = {name_of("W_down", i)}});
  }
  return all;
}

bool reads(const std::string& path) {
  return path.ends_with(".bin") && file_exists(path) && !folder_exists(path) && !is_pickle(path);
}

ImportedModel read(const std::string& path) {
  FileReader file(path);
  check(file.size() > header_bytes_of_version_1, "llama2c: ", path, " is too short: ", file.size(),
        " bytes; get the file again");
  const Header h = read_header(file, path);
  GptSettings s;
  s.layers = h.layers, s.heads = h.heads, s.width = h.width, s.context = h.context, s.vocabulary = h.vocabulary;
  s.d_ff = h.d_ff, s.kv_heads = h.kv_heads == h.heads ? 0 : h.kv_heads, s.tied_head = h.tied;
  s.normalization = parse_spec("rms(epsilon=1e-5)"), s.feed_forward = parse_spec("gated(silu)");
  s.position = parse_spec("rotary(pairs=interleaved)");
  ImportedModel from{.settings = imported_settings(list_settings(s), Gpt::info.name, "llama2c: " + path),
                     .mappings = mappings_of(h),
                     .tensors = read_tensors(file, h, path)};
  from.ignored["angles.0"] = from.ignored["angles.1"] = "rotary angles, not weights";
  from.begins_texts = true, from.ends = {1};  // run.c puts token 1 before a prompt and stops when it samples one
  const std::string folder = std::filesystem::path(path).parent_path().string();
  from.tokenizer_path = find_data_file(folder.empty() ? "." : folder, {"tokenizer.bin"});
  return from;
}

REGISTER_WEIGHT_FORMAT(llama2c,
                       {.name = "llama2c", .description = ".bin file of llama2.c", .reads = reads, .read = read});

}  // namespace
}  // namespace orrery::models
