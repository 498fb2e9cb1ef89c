// --edits of inspect, generate, evaluate, translate and classify, and edits in claims.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/examples/study.h"
#include "tests/examples/training.h"
#include "tests/support/message.h"

using Words = std::vector<std::string>;
using orrery::testing::expect_error;
using orrery::testing::Message;

namespace {

nlohmann::json json_of(const Words& words) {
  const Outcome outcome = run_orrery(words + Words{"--json"});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  return nlohmann::json::parse(outcome.out);
}
Message refusal(const Words& words) { return expect_error(run_orrery(words)); }

}  // namespace

TEST_CASE("edits: factor 1 changes no output, and an edit changes evaluate, generate and inspect") {
  const Folder folder;
  const std::string run = trained_run(folder, "run", {"--layers=2"});
  const auto loss = [&](const std::string& edits) -> double {
    return json_of({"evaluate", run, "--edits=" + edits})["loss"];
  };
  const double plain = json_of({"evaluate", run})["loss"];
  CHECK(loss("blocks.0.attention.0*1; embedding*1") == plain);
  CHECK(loss("blocks.0.attention*0") != plain);
  const std::string text_of_run = tiny_text();
  const std::set<char> characters(text_of_run.begin(), text_of_run.end());
  CHECK(loss("logits=0") == doctest::Approx(std::log(static_cast<double>(characters.size()))));
  CHECK(loss("blocks.0.attention@3=mean") != plain);
  const auto text = [&](const Words& more) {
    return run_orrery(Words{"generate", run, "--prompt=abe", "--tokens=40", "--seed=3"} + more).out;
  };
  CHECK(text({"--edits=blocks.1.feed_forward*1"}) == text({}));
  CHECK(text({"--edits=blocks.1.feed_forward.unit3=mean; embedding*-1"}) != text({}));
  const auto logits = [&](const Words& more) {
    return json_of(Words{"inspect", run, "--hooks=logits"} + more)["values"][0]["mean"].get<double>();
  };
  CHECK(logits({"--text=abeabe", "--patch_from=eabbae", "--edits=embedding=other"}) == logits({"--text=eabbae"}));
  CHECK(logits({"--text=abeabe", "--edits=logits=2"}) == 2);
  // A text that grows, with keys that the first pass has or lacks.
  for (const char* const edits : {"blocks.0.attention.0.key2=mean", "blocks.0.attention.0.key7=mean"})
    CHECK(run_orrery({"generate", run, "--prompt=abe", "--tokens=6", std::string("--edits=") + edits}).code == 0);
  // Keys count from the beginning of a text, and the model from that of what is left of it.
  const std::string key = "blocks.0.attention.0.key2*0";
  expect_error(run_orrery({"generate", run, "--prompt=abe", "--tokens=7", "--edits=" + key}))
      .names("--edits")
      .value(key)
      .value(9)
      .names("context is 8")
      .offers("fewer --tokens");
  CHECK(std::isfinite(loss("blocks.0.attention.scores=mean")));
  // The analysis of heads also runs texts that it generates, with other lengths.
  CHECK(run_orrery({"inspect", run, "--text=abeab", "--patch_from=eabba", "--edits=embedding@1-2=other"}).code == 0);
}

TEST_CASE("edits: every output says which edits were in effect, and what a mean is taken over") {
  const Folder folder;
  const std::string run = trained_run(folder, "run"), edits = "embedding*2; blocks.0.attention.0=mean",
                    given = "--edits=embedding *2;\nblocks.0.attention.0=mean",
                    first = "the positions of the first pass", here = "the positions of this example";
  const nlohmann::json loss = json_of({"evaluate", run, given}), plain = json_of({"evaluate", run});
  CHECK(loss["edits"] == edits);
  CHECK(loss["mean_over"] == first);
  CHECK((plain["edits"].is_null() && plain["mean_over"].is_null()));
  Message(run_orrery({"evaluate", run, given}).out).names("edits").value(edits).offers(first);
  const Words generate = {"generate", run, "--prompt=abe", "--tokens=2", given};
  Message(run_orrery(generate).err).names("edits").value(edits).offers(first);
  const Words inspect = {"inspect", run, "--text=abeabe", "--analysis=heads", given};
  const nlohmann::json views = json_of(inspect);
  CHECK(views["edits"] == edits);
  CHECK(views["mean_over"] == here);
  CHECK(json_of({"inspect", run, "--examples=2", "--analysis=heads", given})["mean_over"] ==
        "the positions of 2 held-out examples");
  CHECK(json_of({"inspect", run, "--text=abe"})["edits"].is_null());
  Message(run_orrery(inspect).out).names("edits").value(edits).offers(here);
  const std::string file = folder / "values.safetensors";
  REQUIRE(run_orrery(inspect + Words{"--out=" + file}).code == 0);
  const std::string bytes = read_file(file);
  CHECK(bytes.find("\"edits\":\"" + edits + "\"") != bytes.npos);
  CHECK(bytes.find("\"mean_over\":\"" + here + "\"") != bytes.npos);
}

TEST_CASE("edits: what is wrong is refused with the way out") {
  const Folder folder;
  const std::string run = trained_run(folder, "run");
  refusal({"evaluate", run, "--edits=blocks.0.atention*0"}).value("blocks.0.atention").offers("blocks.0.attention");
  refusal({"generate", run, "--edits=embedding@2=0"}).value("embedding@2=0").offers("orrery inspect");
  refusal({"generate", run, "--edits=embedding=other"}).value("embedding=other").offers("--patch_from");
  refusal({"inspect", run, "--text=abe", "--edits=embedding=other"}).value("embedding=other").offers("--patch_from");
  refusal({"inspect", run, "--text=abe", "--edits=embedding@7=0"}).value("embedding@7=0").names("position");
  refusal(train_tiny(folder, "other", {"--edits=embedding*0"})).names("edits").offers("inspect").offers("claim");
}

TEST_CASE("edits: classes of images and translations") {
  const Folder folder;
  const std::string models = ORRERY_SOURCE_DIR "/tests/models", shapes = models + "/images/shapes";
  const Outcome images = run_orrery({"train", "--out=" + (folder / "images"), "--evaluate_every=0", "--model=resnet",
                                     "--width=4", "--data=" + shapes, "--batch_size=4", "--steps=2"});
  REQUIRE_MESSAGE(is_complete(images), images.err);
  const auto probability = [&](const std::string& edits) -> double {
    return json_of({"classify", folder / "images", "--top=2", "--edits=" + edits, shapes + "/val"})[0]["classes"][0]
                  ["probability"];
  };
  CHECK(probability("head=0") == 0.5);
  CHECK(json_of({"classify", folder / "images", "--edits=head = 0", shapes + "/val"})[0]["edits"] == "head=0");
  const Outcome pairs = run_orrery({"train", "--out=" + (folder / "pairs"), "--evaluate_every=0",
                                    "--model=encoder_decoder", "--layers=1", "--heads=1", "--width=8", "--context=64",
                                    "--tokenizer=character", "--batch_size=2", "--steps=2", "--validation_fraction=0.4",
                                    "--data=" + folder.write("p.tsv", "ab\tba\nba\tab\naab\tbaa\nbb\tbb\nab\tba\n")});
  REQUIRE_MESSAGE(is_complete(pairs), pairs.err);
  const std::string input = folder.write("in", "ab\n");
  const auto translation = [&](const Words& more) {
    const Outcome found =
        run_orrery(Words{"translate", folder / "pairs", "--input=" + input, "--max_tokens=5", "--beam=1"} + more);
    REQUIRE_MESSAGE(found.code == 0, found.err);
    return found.out;
  };
  CHECK(translation({"--edits=encoder.embedding*1"}) == translation({}));
  for (const char* const command : {"evaluate", "translate"})
    refusal({command, folder / "pairs", "more"}).names(command).value("'more'").offers("--");
  const Words at = {"evaluate", folder / "pairs", "--edits=decoder.0.attention.layer@1*0"};
  refusal(at).value("decoder.0.attention.layer@1*0").names("decoding").offers("--bleu=no");
  CHECK(run_orrery(at + Words{"--bleu=no"}).code == 0);
  CHECK(run_orrery({"evaluate", folder / "pairs", "--edits=decoder.0.attention.layer.0.key0=mean"}).code == 0);
}

TEST_CASE("edits: variants of a claim that differ by edits share their runs") {
  const Folder folder;
  const std::string text = claim_text(folder, trained + "refuted_if = \"without != 2.70805 +- 0.01 %\"\n",
                                      "[variants.whole]\n[variants.without]\nedits = \"logits=0\"\n");
  const Outcome found = run_study(folder, text);
  INFO(found.out, found.err);
  CHECK(found.code == 0);
  CHECK(written_runs(folder / "pool").size() == 3);  // one for each seed
  const nlohmann::json verdict = verdict_in(folder / "study");
  CHECK(verdict["verdict"] == "shown");
  expect_error(run_study(folder, claim_text(folder, trained + "refuted_if = \"without < whole\"\n",
                                            "[variants.whole]\nedits = \"logits=0\"\n[variants.without]\n"
                                            "edits = \" logits = 0;\"\n")))
      .names("whole")
      .value("without")
      .names("same");
  const auto wrong = [&](const std::string& edits, const std::string& head) {
    return expect_error(run_study(folder, claim_text(folder, head + "refuted_if = \"without < whole\"\n",
                                                     "[variants.whole]\n[variants.without]\nedits = \"" + edits +
                                                         "\"\n")));
  };
  const std::string rows = read_file(folder / "study/runs.csv");  // the runs as they were trained
  CHECK(rows.find("\"without, before its edits logits=0\",1,") != rows.npos);
  const auto runs = written_runs(folder / "pool");
  wrong("blocks.7.attention*0", "kind = \"trained\"\nseeds = [7, 8]\nmetric = \"validation_loss\"\n")
      .names("claim.toml")
      .value("blocks.7.attention*0");
  CHECK(written_runs(folder / "pool") == runs);  // before a run was trained
  for (const std::string other : {"[\"logits=0\"]", "3", "true"})
    expect_error(run_study(folder, claim_text(folder, trained + "refuted_if = \"without < whole\"\n",
                                              "[variants.whole]\n[variants.without]\nedits = " + other + "\n")))
        .names("claim.toml")
        .names("edits")
        .offers("a text");
  wrong("embedding*0", "kind = \"derived\"\nseeds = [1, 2, 3]\nmetric = \"loss\"\n").names("edits").value("derived");
}
