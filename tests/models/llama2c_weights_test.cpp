// Import of the weights of llama2.c.
#include <doctest/doctest.h>

#include <map>

#include "engine/system/files.h"
#include "models/architectures/gpt.h"
#include "tests/models/interop_models.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing::interop_models;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::largest_difference;

namespace {

// Writes a llama2.c file with the weights of our model, following the description in run.c.
void write_llama2c(const std::string& path, const LoadedRun& run, bool second_version) {
  const auto& s = run.settings.model_settings.as<GptSettings>();
  std::map<std::string, std::vector<float>> ours;
  for (const nn::NamedParameter& p : nn::parameters_of(*run.model)) {
    const std::vector<double> numbers = p.parameter->value.to_vector();
    ours[p.path].assign(numbers.begin(), numbers.end());
  }
  const auto c = static_cast<size_t>(s.width), keys = c / 2, inner = static_cast<size_t>(s.d_ff) * c;
  std::string bytes;
  const auto whole = [&](int64_t number) {
    const auto four = static_cast<int32_t>(number);
    bytes.append(reinterpret_cast<const char*>(&four), 4);
  };
  const auto put = [&](const std::string& path_in_model, size_t begin = 0, size_t count = 0) {
    const std::vector<float>& all = ours.at(path_in_model);
    bytes.append(reinterpret_cast<const char*>(all.data() + begin), 4 * (count ? count : all.size()));
  };
  const auto each = [&](const std::string& part, size_t begin = 0, size_t count = 0) {
    for (int64_t i = 0; i < s.layers; ++i) put("blocks." + std::to_string(i) + "." + part, begin, count);
  };
  if (second_version) whole(0x616b3432), whole(1);
  for (const int64_t number : {s.width, s.d_ff, s.layers, s.heads, s.kv_heads,
                               s.tied_head || second_version ? s.vocabulary : -s.vocabulary, s.context})
    whole(number);
  if (second_version) bytes.push_back(static_cast<char>(s.tied_head)), bytes.resize(256);
  const std::string qkv = "attention.query_key_value.weight";
  const auto matrices = [&] {
    each(qkv, 0, c * c), each(qkv, c * c, keys * c), each(qkv, (c + keys) * c, keys * c);
    each("attention.output.weight");
  };
  const auto inner_matrices = [&] {
    each("feed_forward.input.weight", 0, inner), each("feed_forward.output.weight");
    each("feed_forward.input.weight", inner, inner);
  };
  if (second_version) {
    each("attention_norm.weight"), each("feed_forward_norm.weight"), put("norm.weight"), put("token_embedding.weight");
    matrices(), inner_matrices();
  } else {
    put("token_embedding.weight"), each("attention_norm.weight"), matrices();
    each("feed_forward_norm.weight"), inner_matrices(), put("norm.weight");
    bytes.append(static_cast<size_t>(4 * s.context * s.width / s.heads), '\0');
  }
  if (!s.tied_head) put("head.weight");
  write_file_atomically(path, bytes);
}

}  // namespace

TEST_CASE("interop: llama2.c's files, of both versions, tied or not, with grouped heads") {
  for (const char* tied : {"yes", "no"})
    for (const bool second : {false, true}) {
      const Folder folder;
      const LoadedRun run = made({{"position", "rotary(pairs=interleaved)"},
                                  {"normalization", "rms(epsilon=1e-5)"},
                                  {"feed_forward", "gated(silu)"},
                                  {"d_ff", "24"},
                                  {"heads", "4"},
                                  {"kv_heads", "2"},
                                  {"tied_head", tied}});
      write_llama2c(folder / "x.bin", run, second);
      const ImportReport report = imported(folder / "x.bin", folder / "run");
      CHECK(report.unused.size() == (second ? 0 : 2));
      CHECK(largest_difference(logits(*run.model), logits(*read_run(folder / "run").model)) == 0);
      const std::string bytes = read_file(folder / "x.bin");
      write_file_atomically(folder / "short.bin", bytes.substr(0, bytes.size() - 4));
      expect_error([&] { imported(folder / "short.bin", folder / "out"); })
          .names(folder / "short.bin")
          .value(bytes.size() - 4)
          .value(2)
          .offers(bytes.size());
    }
  const Folder folder;
  write_file_atomically(folder / "x.bin", std::string(1000, 'x'));
  expect_error([&] { imported(folder / "x.bin", folder / "out"); }).names(folder / "x.bin").value("llama2.c");
}
