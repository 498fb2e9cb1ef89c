// The settings that a checkpoint records: every spec in full, used to load and to resume.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>

#include "engine/autograd/autograd.h"
#include "engine/system/files.h"
#include "models/architectures/gpt.h"
#include "models/training/run_folder.h"
#include "models/training/trainer.h"
#include "nn/attentions/base/attention.h"
#include "nn/optimizers/base/optimizer.h"
#include "nn/schedules/base/schedule.h"
#include "tests/support/folder.h"
#include "tests/support/gpt_settings.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::largest_difference;
namespace fs = std::filesystem;

namespace {

using orrery::testing::gpt_settings;
Assignments run_with(const Folder& folder, const Assignments& more) {
  std::string all;
  for (int i = 0; i < 60; ++i) all += "the quick fox number " + std::to_string(i * 7919 % 100) + " jumps.\n";
  write_file_atomically(folder / "text.txt", all);
  Assignments a = {{"data", folder / "text.txt"},
                   {"out", folder / "run"},
                   {"steps", "2"},
                   {"layers", "1"},
                   {"heads", "2"},
                   {"width", "16"},
                   {"context", "16"},
                   {"batch_size", "2"}};
  a.insert(a.end(), more.begin(), more.end());
  return a;
}
std::string resolved_text(const std::string& attention) { return print(nn::resolved_attention(parse_spec(attention))); }
GptSettings small() {
  GptSettings s;
  s.layers = 1, s.heads = 2, s.width = 16, s.context = 12, s.vocabulary = 9;
  return s;
}
Tensor logits_of(const GptSettings& settings) {
  const NoGrad guard;
  Gpt model(settings);
  nn::initialize(model, 3);
  nn::ForwardPass pass;
  return model(Tensor::from(Shape{1, 6}, std::vector<int32_t>{1, 4, 2, 8, 5, 7}), pass);
}

}  // namespace

TEST_CASE("a resolved spec names every setting, including defaults") {
  const std::string rest =
      "gate=none, qk_norm=none, scale=0, dropout=0, attend_to_self=default, span=none, persistent=none)";
  CHECK(resolved_text("pointwise(relu)") == "pointwise(function=relu, alpha=1, length=keys_visible, " + rest);
  CHECK(resolved_text("pointwise") == resolved_text("pointwise(relu)"));
  CHECK(resolved_text("pointwise(gelu, alpha=learned, length=fixed(64))") ==
        "pointwise(function=gelu, alpha=learned(1), length=fixed(64), " + rest);
  CHECK(resolved_text("relu_former") == "relu_former(gamma=1, length=keys_visible, " + rest);
  CHECK(resolved_text("softmax(span=adaptive_span(8), persistent=3)")
            .find("span=adaptive_span(S=8, R=32), persistent=slots(N=3, split=no, scaled=yes))") != std::string::npos);
  CHECK(resolved_text("softmax(span=fixed(8))").find("span=fixed(S=8)") != std::string::npos);
}

TEST_CASE("a resolved spec makes an equal object for every registered name, and resolving it changes nothing") {
  const auto check = [](Spec GptSettings::*member, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      INFO(name);
      TrainSettings plain;
      gpt_settings(plain) = small();
      gpt_settings(plain).*member = parse_spec(name);
      const TrainSettings once = resolved(plain), twice = resolved(once);
      CHECK(list_settings(once) == list_settings(twice));
      CHECK(largest_difference(logits_of(gpt_settings(plain)), logits_of(gpt_settings(once))) == 0);
    }
  };
  std::vector<std::string> attentions = nn::attentions().names();
  for (const char* more : {"softmax(span=dynamic_span(8), persistent=slots(3, split=yes))",
                           "pointwise(elu(0.5), alpha=learned(0.3), gate=silu, qk_norm=layer)"})
    attentions.push_back(more);
  check(&GptSettings::attention, attentions);
  check(&GptSettings::feed_forward, nn::feed_forwards().names());
  check(&GptSettings::normalization, nn::normalizations().names());
  check(&GptSettings::position, nn::positions().names());
  Gpt model(small());
  nn::initialize(model, 1);
  nn::FlatParameters parameters(model);
  for (const std::string& name : nn::optimizers().names()) {
    INFO(name);
    const Spec once = nn::resolved(nn::optimizers(), parse_spec(name));
    CHECK(nn::resolved(nn::optimizers(), once) == once);
    CHECK_NOTHROW(nn::make_optimizer(once, parameters));
  }
  for (const std::string& name : nn::schedules().names()) {
    INFO(name);
    const Spec once = nn::resolved(nn::schedules(), parse_spec(name));
    CHECK(nn::resolved(nn::schedules(), once) == once);
    CHECK_NOTHROW(nn::make_schedule(once, {.learning_rate = 1e-3, .steps = 10}));
  }
}

TEST_CASE("a checkpoint stores the resolved specs, and loading and resuming use them") {
  const Folder folder;
  Trainer(make_settings(run_with(folder, {{"attention", "pointwise(relu)"}}))).run();
  const std::string checkpoint = latest_checkpoint(folder / "run");
  const Assignments stored = read_state(checkpoint).settings;
  const std::map<std::string, std::string> recorded(stored.begin(), stored.end());
  CHECK(recorded.at("attention") == resolved_text("pointwise(relu)"));
  CHECK(recorded.at("feed_forward").starts_with("dense("));
  CHECK(recorded.at("optimizer").find("beta2=0.99") != std::string::npos);

  const TrainSettings loaded = make_settings(read_state(checkpoint).settings);
  CHECK(print(gpt_settings(loaded).attention) == resolved_text("pointwise(relu)"));
  Gpt model(gpt_settings(loaded));
  load_weights(checkpoint, model);

  // The weights would fit each of these models; only the recorded settings distinguish them.
  const auto resume = [&](const Assignments& more) {
    Assignments a = run_with(folder, {{"steps", "3"}, {"resume", "yes"}});
    a.insert(a.end(), more.begin(), more.end());
    Trainer(make_settings(a)).run();
  };
  const auto refused = [&](const Assignments& more) { return expect_error([&] { resume(more); }); };
  const std::string run = folder / "run", is = "attention=" + resolved_text("pointwise(relu)"),
                    way_out = "orrery train --resume=" + run;
  for (const std::string other :
       {"softmax", "pointwise(gelu)", "pointwise(relu, alpha=0.5)", "pointwise(relu, length=row_index)"})
    refused({{"attention", other}}).names(run).value(is).value(resolved_text(other)).offers(way_out);
  refused({}).names(run).value(is).value(resolved_text("softmax")).offers(way_out);
  CHECK_NOTHROW(resume({{"attention", "pointwise(relu)"}, {"dropout", "0.1"}}));
  CHECK_NOTHROW(resume({{"attention", "pointwise(alpha=1)"}, {"steps", "4"}}));
  refused({{"attention", "pointwise"}, {"width", "32"}}).names(run).names("width").value(16).value(32).offers(way_out);
}
