// Export of models that orrery made: formats that can hold them, and refusals of the others.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>

#include "engine/ops/ops.h"
#include "models/interop/base/weight_format.h"
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
using orrery::testing::Message;
namespace fs = std::filesystem;

TEST_CASE("interop: models are exported if the format supports them, with zeros for missing biases") {
  const std::vector<std::pair<std::string, std::string>> llama = {{"position", "rotary(pairs=interleaved, base=300)"},
                                                                  {"normalization", "rms"},
                                                                  {"feed_forward", "gated(silu)"},
                                                                  {"attention_bias", "yes"},
                                                                  {"tied_head", "no"}};
  for (const auto& changes :
       {std::vector<std::pair<std::string, std::string>>{}, {{"normalization_bias", "no"}}, llama}) {
    const Folder folder;
    const LoadedRun run = made(changes);
    export_model(run.exported(), folder / "exported", "");
    const ImportReport report = imported(folder / "exported", folder / "again");
    CHECK(report.tokenizer == "byte");
    const Tensor before = logits(*run.model), after = logits(*read_run(folder / "again").model);
    CHECK(largest_difference(before, after) <= 1e-3 * largest_difference(before, Tensor::zeros_like(before)));
  }
}

TEST_CASE("interop: the error for an unsupported model names the setting, and no file is left") {
  const auto refused = [](const std::vector<std::pair<std::string, std::string>>& changes,
                          const char* format = "gpt2") {
    const Folder folder;
    const Message message = expect_error([&] { export_model(made(changes).exported(), folder / "out", format); });
    CHECK(fs::is_empty(folder.path));
    return message;
  };
  for (const auto& [key, value] : std::map<std::string, std::string>{{"normalization", "dyt(alpha=1)"},
                                                                     {"final_normalization", "rms"},
                                                                     {"attention", "pointwise(relu)"},
                                                                     {"feed_forward", "gated(silu)"},
                                                                     {"embedding_scale", "learned(2)"},
                                                                     {"parallel", "yes"},
                                                                     {"norm_place", "post"},
                                                                     {"residual_gain", "0.5"},
                                                                     {"kv_heads", "1"},
                                                                     {"head_size", "4"},
                                                                     {"head_bias", "yes"},
                                                                     {"position", "alibi(learned=no)"}})
    refused({{key, value}}).names("gpt2").value(key + "=" + value);
  refused({}, "llama").names("llama").value("position=learned");
  refused({{"feed_forward", "dense(softplus)"}}).names("gpt2").value("feed_forward=dense(softplus)");
  for (const char* const position : {"alibi", "none", "sinusoidal"}) {
    Message message = refused({{"position", position}}, "").value(text("position=", position)).names("model=gpt");
    message.offers("gpt2").offers("position=learned").offers("llama").offers("position=rotary");
  }
  refused({}, "llama2c").names("llama2c").value("import only").offers("gpt2");
  refused({}, "vit").names("vit").offers("class vit").value("model=gpt").value("class gpt");
  const TrainSettings net = make_settings({{"model", "resnet8"}, {"channels", "3"}, {"classes", "2"}});
  const auto resnet = make_model(net);
  const auto export_net = [&] { export_model({net, *resnet, "[]"}, "/nowhere/out", ""); };
  expect_error(export_net).names("model=resnet8").value("class resnet").offers("gpt2");
  const Folder folder;
  const std::string there = folder.path.string();
  expect_error([&] { export_model(made({}).exported(), there, ""); }).names(there).offers("--out");
}
