// orrery inspect --out: files of metrics, arrays and the values of hooks.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/tensor/safetensors.h"
#include "tests/examples/inspect.h"

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Words = std::vector<std::string>;
using orrery::read_safetensors;
using orrery::testing::expect_error;
using orrery::testing::finds;
using orrery::testing::Message;

TEST_CASE("inspect: metrics of heads are written as a table, an HTML page and tensors") {
  const Folder folder;
  const std::string run = trained_run(folder, "run"), page = folder / "page.html", file = folder / "seen.safetensors";
  const Outcome heads = inspect({run, "--text=abeabeab", "--analysis=heads,attention", "--html=" + page,
                                 "--out=" + file, "--seed=3", "--threads=1"});
  CHECK(finds(heads.out, "attention +head  entropy  zeros  row sum  distance  induction"));
  CHECK(contains(heads.out, "Entropies relative to uniform weights"));
  CHECK(last_line(heads.out) == page);
  CHECK(contains(read_file(page), "\"kind\":\"matrices\""));
  CHECK(contains(read_file(page), "orrery inspect "));
  const Outcome shown = run_orrery({"show", file});
  CHECK(finds(shown.out, "attention/blocks.attention +F32 +\\(2, 8, 8\\)"));
  CHECK(contains(shown.out, "heads/entropy"));
  CHECK(contains(shown.out, "heads/zeros  "));  // softmax has 0 everywhere
}

TEST_CASE("inspect: --out writes every analysis; unknown formats and folders of runs are refused") {
  const Folder folder;
  const std::string run = trained_run(folder, "run", {"--normalization=dyt"});
  const Words all = {run, "--text=abeabeab", "--analysis=all"};
  inspect(all + Words{"--out=" + (folder / "seen.safetensors")});
  const std::string listed = run_orrery({"show", folder / "seen.safetensors"}).out;
  inspect(all + Words{"--out=" + (folder / "seen.csv")});
  std::istringstream csv(read_file(folder / "seen.csv"));
  std::string line;
  std::getline(csv, line);
  int count = 0;
  for (; std::getline(csv, line); ++count) CHECK_MESSAGE(contains(listed, line.substr(0, line.find(',')) + " "), line);
  CHECK(count > 50);
  for (const char* metric : {"logit_lens/size/blocks.0.attention", "ablation/without/blocks.0.attention",
                             "normalization_curves/inverse_deviation/", "normalization_curves/like_tanh/",
                             "neurons/carriers/blocks.0.feed_forward", "logit_lens/size/state",
                             "normalization_curves/means/blocks.0.attention_norm", "neurons/mass/"})
    CHECK_MESSAGE(contains(listed, metric), metric);
  inspect(all + Words{"--out=" + (folder / "seen")});
  CHECK(read_file(folder / "seen/metrics.csv") == read_file(folder / "seen.csv"));
  CHECK(fs::exists(folder / "seen/neurons.mass.blocks.0.feed_forward.npy"));
  // The arrays carry the names of their rows and columns, and the tokens.
  const Json tokens = Json::parse(R"(["a","b","e","a","b","e","a","b"])");
  const auto metadata = read_safetensors(folder / "seen.safetensors").metadata;
  CHECK(metadata.at("run") == run);
  CHECK(metadata.at("example") == "given");
  CHECK(Json::parse(metadata.at("tokens")) == tokens);
  const Json arrays = Json::parse(metadata.at("arrays")), maps = arrays["attention/blocks.attention"];
  CHECK(maps["quantity"] == "weight");
  CHECK(maps["axes"][0]["labels"] == Json({"blocks.0.attention, head 0", "blocks.0.attention, head 1"}));
  CHECK(maps["axes"][1] == Json({{"name", "query"}, {"labels", tokens}}));
  CHECK(maps["axes"][2] == Json({{"name", "key"}, {"labels", tokens}}));
  const Json names = Json::parse(read_file(folder / "seen/heads.entropy.json"));
  CHECK(names["array"] == "heads/entropy");
  CHECK(names["axes"] == arrays["heads/entropy"]["axes"]);
  CHECK(names["axes"][1]["labels"] == Json({"blocks.0.attention"}));
  CHECK(names["tokens"] == tokens);
  inspect(all + Words{"--out=" + (folder / "seen.safetensors")});  // both replace their own files
  inspect(all + Words{"--out=" + (folder / "seen")});
  folder.write("seen/heads.entropy.json", "{}");
  refusal(all + Words{"--out=" + (folder / "seen")}).value("heads.entropy.json").names("names").offers("another --out");
  Message json = refusal({run, "--text=abe", "--out=" + (folder / "x.json")});
  json.names("--out").value("x.json").value(".json").offers("FILE.safetensors").offers("FILE.csv").offers("folder");
  CHECK(!fs::exists(folder / "x.json"));
  const std::string checkpoint = run + "/step_000004";
  for (const std::string& taken : {run, checkpoint, checkpoint + "/seen.csv"})
    refusal({run, "--text=abe", "--out=" + taken}).names("--out").value(taken).offers("another --out");
  CHECK(!fs::exists(checkpoint + "/seen.csv"));
  const auto before = std::distance(fs::directory_iterator(checkpoint), fs::directory_iterator());
  for (const Words& words : {Words{"metrics", run, "--out=" + checkpoint + "/m.csv"},
                             Words{"report", run, "--out=" + checkpoint + "/r.html"},
                             Words{"metrics", run, "--format=tensorboard", "--out=" + checkpoint},
                             Words{"show", run, "--tensor=token_embedding.weight", "--out=" + checkpoint + "/w.npy"}})
    expect_error(run_orrery(words)).names(words[0]).names("out").value(checkpoint).offers("choose another --out");
  CHECK(std::distance(fs::directory_iterator(checkpoint), fs::directory_iterator()) == before);
  inspect({run, "--text=abe", "--out=" + run + "/inspect"});
}

TEST_CASE("inspect: the values of hooks are listed and written") {
  const Folder folder;
  const std::string run = trained_run(folder, "run"), out = folder / "seen";
  const Outcome captured =
      inspect({run, "--text=abed", "--hooks=blocks.*.attention.weights, *.hidden", "--out=" + out});
  CHECK(contains(captured.out, "blocks.0.attention.weights    f32    (1, 2, 4, 4)"));
  CHECK(contains(captured.out, "blocks.0.feed_forward.hidden  f32    (1, 4, 64)"));
  Message(last_line(captured.out)).names(out).value("4 files");
  CHECK(fs::exists(out + "/blocks.0.attention.weights.npy"));
  const Json names = Json::parse(read_file(out + "/blocks.0.attention.weights.json"));
  const Json unnamed = Json::array(), letters = {"a", "b", "e", "d"};
  CHECK(names["axes"] == Json({{{"name", "batch"}, {"labels", unnamed}},
                               {{"name", "head"}, {"labels", unnamed}},
                               {{"name", "position"}, {"labels", letters}},
                               {{"name", "key"}, {"labels", letters}}}));
  CHECK(names["example"] == "given");
  CHECK(!contains(captured.out, "Attention: "));
  const Outcome both = inspect({run, "--text=abed", "--hooks=*.hidden", "--analysis=heads"});
  CHECK(contains(both.out, "blocks.0.feed_forward.hidden  f32"));
  CHECK(contains(both.out, "Heads: Metrics of each head"));
  refusal({run, "--text=abed", "--hooks=blocks.0.attention.weihgts"})
      .names("hooks")
      .value("blocks.0.attention.weihgts")
      .offers("'blocks.0.attention.weights'");
}
