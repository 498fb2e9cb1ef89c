// Hashes of claims: they assign a stored verdict to a claim, also after names have changed.
#include <doctest/doctest.h>

#include <filesystem>

#include "engine/system/files.h"
#include "models/study/claim.h"
#include "models/study/verdict_file.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

const std::string former = R"toml(source = "a test"
sentence = "Two variants differ."
kind = "trained"
figure = "34 | 33"
seeds = [1, 2, 3]
metric = "mean(top_share/*)"
refuted_if = ["relu > softmax", "max(causes/without/*): relu > softmax - 0.01"]
[example]
text = "a"
[base]
model = "sm-g"
batch = 2
learning_rate = 1e-3
initial_std = "by_width"
figures = "output_variance,stream_variance"
[sweep]
key_heads = [1, 2]
[variants.relu]
attention = "pointwise(relu)"
[variants.softmax]
initial_std = "by_inputs"
)toml";
const std::string current = R"toml(# Renamed, in another order.
kind = "trained"
source = "a test"
sentence = "Two variants differ."
reported = "34 | 33"
metric   = "mean(top_unit_fraction/*)"
seeds = [1, 2, 3]
refuted_if = [
  "relu > softmax",
  "max(ablation/without/*): relu > softmax - 0.01",
]
sweep.kv_heads = [1, 2]
[variants.softmax]
initialization = "fan_in"
[variants.relu]
attention = "pointwise(relu)"
[base]
metrics = "output_variance,residual_variance"
initialization = "inverse_sqrt_width"
learning_rate = 0.001
batch_size = 2
model = "norm-free-gelu"
[example]
text = "a"
)toml";

std::string hash_of(const Folder& folder, const std::string& text) {
  write_file_atomically(folder / "claim.toml", text);
  return claim_hash(folder / "claim.toml");
}

}  // namespace

TEST_CASE("claim: former and current names give one hash, for any comments and order") {
  const Folder folder;
  CHECK(hash_of(folder, former) == "fadf833f76d6af65396f79dab0a4d2e54284074aa9689bf31b880fb336ce386e");
  CHECK(hash_of(folder, current) == hash_of(folder, former));
  const std::vector<std::pair<std::string, std::string>> changes = {{"[1, 2, 3]", "[1, 2, 4]"},
                                                                    {"softmax - 0.01", "softmax"},
                                                                    {"34 | 33", "34 | 32"},
                                                                    {"top_unit", "dead_unit"},
                                                                    {"fan_in", "normal"}};
  for (const auto& [from, to] : changes) {
    std::string other = current;
    other.replace(other.find(from), from.size(), to);
    CHECK(hash_of(folder, other) != hash_of(folder, current));
  }
}

TEST_CASE("claim: former and current names are read as the same claim") {
  const Folder folder;
  hash_of(folder, former);
  const Claim before = read_claim(folder / "claim.toml");
  hash_of(folder, current);
  const Claim now = read_claim(folder / "claim.toml");
  CHECK(before.reported == now.reported);
  CHECK(now.reported == "34 | 33");
  CHECK(before.analyses() == now.analyses());
  CHECK(now.analyses() == std::vector<std::string>{"ablation"});
  REQUIRE(before.metrics.size() == now.metrics.size());
  for (size_t i = 0; i < now.metrics.size(); ++i) CHECK(print(before.metrics[i]) == print(now.metrics[i]));
  CHECK(print(now.metrics[0]) == "mean(top_unit_fraction/*)");
  hash_of(folder, "figure = \"34\"\n" + current);
  expect_error([&] { read_claim(folder / "claim.toml"); }).names("reported").names("figure");
}

TEST_CASE("claim: a variant whose name is that of a metric keeps it") {
  const Folder folder;
  std::string text = current;
  const auto replace = [&](const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  };
  replace("\"relu > softmax\"", "\"neurons > memories\"");
  replace("relu > softmax - 0.01", "neurons > memories - 0.01");
  replace("[variants.softmax]", "[variants.memories]");
  replace("[variants.relu]", "[variants.neurons]");
  const std::string hash = hash_of(folder, text);
  replace("\"neurons > memories\"", "\"memories > neurons\"");
  CHECK(hash_of(folder, text) != hash);  // the opposite claim

  StudyVerdict verdict;
  verdict.metric = "loss", verdict.kind = "trained";
  verdict.result.comparisons.resize(2);
  verdict.result.comparisons[0].refuted_if = "memories > depth + 0.1";
  verdict.result.comparisons[0].name = "memories - depth";
  verdict.result.comparisons[1].refuted_if = "causes/loss: memories > depth";
  write_verdict(folder / "verdict.json", verdict);
  const StudyVerdict read = read_verdict(folder / "verdict.json");
  CHECK(read.result.comparisons.at(0).refuted_if == "memories > depth + 0.1");
  CHECK(read.result.comparisons.at(0).name == "memories - depth");
  CHECK(read.result.comparisons.at(1).refuted_if == "ablation/loss: memories > depth");
}

TEST_CASE("claim: an old verdict shows the current names of its metrics") {
  const Folder folder;
  StudyVerdict verdict;
  verdict.metric = "top_share/blocks.0.feed_forward", verdict.kind = "derived";
  verdict.result.comparisons.resize(1);
  verdict.result.comparisons[0].refuted_if = "causes/loss: a > b";
  verdict.result.comparisons[0].metric = "mean(attention_zeros/*)";
  verdict.result.comparisons[0].sentence = "shown: mean(attention zeros/*), a - b is -0.44, 3 seeds";
  write_verdict(folder / "verdict.json", verdict);
  const StudyVerdict read = read_verdict(folder / "verdict.json");
  CHECK(read.metric == "top_unit_fraction/blocks.0.feed_forward");
  CHECK(read.result.comparisons.at(0).metric == "mean(attention_zero_fraction/*)");
  CHECK(read.result.comparisons.at(0).sentence == "shown: mean(attention zero fraction/*), a - b is -0.44, 3 seeds");
  CHECK(read.result.comparisons.at(0).refuted_if == "ablation/loss: a > b");
}

TEST_CASE("claim: the reported result of a verdict is read under its former key") {
  const Folder folder;
  StudyVerdict verdict;
  verdict.kind = "derived", verdict.reported = "BLEU 34";
  write_verdict(folder / "verdict.json", verdict);
  std::string text = read_file(folder / "verdict.json");
  const std::string now = "\"reported\": \"BLEU 34\"";
  REQUIRE(text.find(now) != std::string::npos);
  write_file_atomically(folder / "former.json", text.replace(text.find(now), now.size(), "\"figure\": \"BLEU 34\""));
  for (const char* file : {"verdict.json", "former.json"}) CHECK(read_verdict(folder / file).reported == "BLEU 34");
}

TEST_CASE("claim: each claim in the repository is the claim that was tested") {
  size_t count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(ORRERY_SOURCE_DIR "/examples/studies")) {
    if (entry.path().extension() != ".toml") continue;
    const std::string file = entry.path();
    CAPTURE(file);
    const std::string tested = file.substr(0, file.size() - 5) + "/verdict.json";
    if (!file_exists(tested)) continue;  // not tested yet
    const StudyVerdict verdict = read_verdict(tested);
    CHECK(verdict.meaning == claim_hash(file));
    ++count;
  }
  CHECK(count == 50);
}

TEST_CASE("claim: what is empty, too much or of another kind is refused with its place") {
  const Folder folder;
  const auto refused = [&](std::string from, const std::string& to) {
    std::string text = current;
    text.replace(text.find(from), from.size(), to);
    hash_of(folder, text);
    return expect_error([&] { read_claim(folder / "claim.toml"); });
  };
  std::string variants;
  for (int i = 0; i < 65; ++i) variants += "[variants.v" + std::to_string(i) + "]\n";
  refused("[variants.softmax]", variants + "[variants.softmax]").names("claim.toml:").value("67 variants").offers("64");
  refused("sweep.kv_heads = [1, 2]", "[sweep]").names("claim.toml:").names("[sweep]").value("empty").offers("[2, 4]");
  std::string timed = current;
  timed.replace(timed.find("kind = \"trained\""), 16, "kind = \"timed\"\nrounds = 1");
  timed.replace(timed.find("seeds = [1, 2, 3]\n"), 18, "");
  hash_of(folder, timed);
  expect_error([&] { read_claim(folder / "claim.toml"); }).names("claim.toml:3: rounds").offers("2 to 10000");
  const std::string base = current.substr(current.find("[base]"), current.find("[example]") - current.find("[base]"));
  refused(base, "").names("claim.toml").names("base settings").offers("[base]");
  const std::string metric = "mean(top_unit_fraction/*)";
  refused(metric, std::string(1001, 'x')).names("metric").value("1001 characters").offers("1000");
}
