// orrery inspect on texts, images and pairs: its output, its files, and errors.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/tensor/safetensors.h"
#include "tests/examples/training.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Words = std::vector<std::string>;
using orrery::read_safetensors;
using orrery::testing::expect_error;
using orrery::testing::finds;
using orrery::testing::match_in;
using orrery::testing::Message;

namespace {

const std::string scraps = ORRERY_SOURCE_DIR "/tests/models";

Outcome inspect(const Words& words) {
  Outcome outcome = run_orrery(Words{"inspect"} + words);
  INFO(outcome.err);
  CHECK(outcome.code == 0);
  return outcome;
}
std::string text_in_quotes(char c) { return std::string("\"") + c + "\""; }
Message refusal(const Words& words) { return expect_error(run_orrery(Words{"inspect"} + words)); }

}  // namespace

TEST_CASE("inspect: one head of a text is shown as a map with its largest weights") {
  const Folder folder;
  const std::string run = trained_run(folder, "run", {"--layers=2"});
  const Outcome map = inspect({run, "--text=abeabe", "--analysis=attention", "--layer=1", "--head=0", "--top=3"});
  CHECK(contains(map.out, "Attention: blocks.1.attention, head 0\n"));
  Message(map.out).names("weights").value("add up to 1.");
  CHECK(contains(map.out, "     abeabe\n  a |█·····|\n"));
  CHECK(contains(map.out, "; ·: not visible\n"));
  CHECK(finds(map.out, "query  key  weight\n +0 a +0 a +1\\.0000\n"));
  const Outcome all = inspect({run, "--text=abeabe", "--analysis=attention"});
  Message(all.out).names("4 maps").value("6 x 6").offers("--html=FILE.html");
  const std::string file = folder.write("example.txt", "abeabe");
  CHECK(inspect({run, "--text=FILE:" + file, "--analysis=attention", "--layer=1", "--head=0", "--top=3"}).out ==
        map.out);
}

TEST_CASE("inspect: a text beyond the context is cut to its last tokens, and a note reports this") {
  const Folder folder;
  const std::string run = trained_run(folder, "run");
  const Outcome cut = inspect({run, "--text=kedabeabedka", "--analysis=ablation"});
  Message(cut.err).names("note").value("12 tokens").names("context").value(8).names("last");
  CHECK(cut.out == inspect({run, "--text=beabedka", "--analysis=ablation"}).out);
  CHECK(!contains(inspect({run, "--text=beabedka"}).err, "note: "));
}

TEST_CASE("inspect: with --documents=yes, the loss of a text equals the validation loss of the run") {
  const Folder folder;
  const std::string held_out = "the old gate<|endoftext|>a cat<|endoftext|>the grey<|endoftext|>", run = folder / "run";
  std::string text;
  for (int i = 0; i < 64; ++i) text += held_out;
  const Outcome learned =
      run_orrery(Words{"train", "--data=" + folder.write("d", text), "--validation_data=" + folder.write("v", held_out),
                       "--documents=yes", "--tokenizer=" ORRERY_SOURCE_DIR "/tests/cases/gpt2_end_of_text",
                       "--learning_rate=0.05", "--metrics=none", "--out=" + run} +
                 tiny + Words{"--context=64", "--steps=40"});
  REQUIRE_MESSAGE(learned.code == 0, learned.err);
  const auto loss = match_in(last_line(learned.out), "validation loss (\\d+\\.\\d{4})");
  REQUIRE_MESSAGE(loss.size() == 2, learned.out);
  for (const Words& example : {Words{}, Words{"--text=" + held_out}})
    Message(inspect(Words{run, "--analysis=ablation"} + example).out).names("loss").value(loss[1]);
}

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

TEST_CASE("inspect: plots on a terminal show the signs of their values") {
  const Folder folder;
  const std::string run = trained_run(folder, "run");
  const Outcome promoted = inspect({run, "--text=abeabe", "--analysis=neurons", "--slot=3"});
  CHECK(inspect({run, "--text=abeabe", "--analysis=neurons", "--neuron=3"}).out == promoted.out);
  const Outcome help = run_orrery({"help", "inspect", "neuron"});
  Message(help.out).names("--slot").names("hidden unit").names("also:").names("neuron");
  CHECK(finds(promoted.out, "  -0\\.\\d+ +(█)+\\|\n"));  // negative: left of the line
  CHECK(finds(promoted.out, "   0\\.\\d+ +\\|(█)+\n"));  // positive: right of it
  CHECK(!finds(promoted.out, "  -0\\.\\d+ +(█)*\\|█"));
  const Outcome lens = inspect({run, "--text=abeabe", "--analysis=logit_lens"});
  CHECK(finds(lens.out, "scale: ln p of the target 0 to -\\d\\.\\d+ \\(square root\\); "));
  Message(lens.out).names(". - = #").value("negative");
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
  CHECK(names["positions"] == Json({"a", "b", "e", "d"}));
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

TEST_CASE("inspect: models of images and of translations are analyzed") {
  const Folder folder;
  const std::string vit = folder / "vit", pairs = folder / "pairs";
  const Outcome images = run_orrery({"train", "--model=vit-fashion", "--layers=1", "--width=16", "--heads=2",
                                     "--batch_size=4", "--steps=2", "--evaluate_every=0",
                                     "--data=" + scraps + "/images/shapes", "--image_size=8", "--out=" + vit});
  REQUIRE_MESSAGE(images.code == 0, images.err);
  const std::string image = scraps + "/images/shapes/val/rings/0.png";
  const Outcome patches = inspect({vit, "--image=" + image, "--label=1", "--analysis=attention,heads"});
  Message(patches.out).names("2 maps").value("4 x 4");
  Message(patches.out).names("pixels");
  refusal({vit, "--text=abe"}).names("inspect").value("image").offers("--image=FILE.png");
  refusal({vit, "--image=" + image, "--analysis=neurons", "--corpus=x.txt"})
      .names("--corpus")
      .names("language model")
      .offers("leave it out");
  refusal({vit, "--image=" + image, "--label=9"}).names("inspect").names("label").value(9).offers("0 to 1");
  const Outcome translation = run_orrery(
      {"train", "--model=translation-small", "--layers=1", "--width=16", "--heads=2", "--steps=2", "--evaluate_every=0",
       "--data=" + scraps + "/translation/bible.tsv", "--source_column=4", "--target_column=3",
       "--tokenizer=sentence_piece(vocabulary=150)", "--context=256", "--out=" + pairs});
  REQUIRE_MESSAGE(is_complete(translation), translation.err);
  const Outcome given =
      inspect({pairs, "--source=Im Anfang", "--target=In the beginning", "--analysis=attention,heads"});
  for (const char* kind : {"encoder.attention", "decoder.attention", "decoder.cross_attention"})
    CHECK_MESSAGE(contains(given.out, std::string("Attention: ") + kind), kind);
  CHECK(contains(inspect({pairs, "--source=Im Anfang", "--analysis=attention"}).out, "decoder.cross_attention"));
}

TEST_CASE("inspect, report: a model of an algorithmic problem reads numbers, also without feed-forwards") {
  const Folder folder;
  const std::string run = folder / "problem";
  const Outcome outcome =
      run_orrery({"train", "--task=algorithmic", "--problem=copy(length=8)", "--layers=1", "--heads=2", "--width=16",
                  "--context=16", "--batch_size=2", "--steps=2", "--feed_forward=none", "--out=" + run});
  REQUIRE_MESSAGE(is_complete(outcome), outcome.err);
  CHECK(contains(inspect({run, "--text=1 2 3", "--analysis=attention", "--head=0", "--top=1"}).out,
                 "Attention: blocks.0.attention, head 0"));
  const Outcome hooks = inspect({run, "--text=1 2 3", "--hooks=blocks.0.hook_resid_post,blocks.0.attention.weights"});
  CHECK(contains(hooks.out, "blocks.0.output"));
  CHECK(contains(hooks.out, "(1, 2, 3, 3)"));
  refusal({run, "--text=one"}).value("'one'").names("token").offers("numbers").offers("spaces");
  refusal({run, "--text=99"}).names("token").value(99).offers(8);
  const std::string page = folder / "page.html";
  const Outcome report = run_orrery({"report", run, "--out=" + page});
  REQUIRE_MESSAGE(report.code == 0, report.err);
  CHECK(contains(read_file(page), "\"title\":\"Metrics of each head\""));
  CHECK(!contains(read_file(page), "Runs that could not be analyzed"));
}

TEST_CASE("inspect: without an example, held-out data of the run are analyzed, for each kind of model") {
  const Folder folder;
  // The validation split is the last 100 of 1,000 characters; the model reads 8 at once.
  const std::string run = trained_run(folder, "run", {"--layers=2"});
  const Outcome text =
      inspect({run, "--analysis=attention", "--layer=1", "--head=0", "--html=" + (folder / "page.html")});
  Message(text.err).names("first").value(12).value("held-out").offers("--example=held_out:N").offers("--text");
  const auto rows_of = [](size_t begin) {
    std::string rows;
    for (const char c : tiny_text().substr(begin, 8))
      rows += std::string(rows.empty() ? "" : ",") + (c == '\n' ? "\"\\\\n\"" : text_in_quotes(c));
    return "\"rows\":[" + rows + "]";
  };
  CHECK(contains(read_file(folder / "page.html"), rows_of(900)));
  const Outcome last = inspect({run, "--example=held_out:11", "--analysis=attention", "--layer=1", "--head=0",
                                "--html=" + (folder / "page.html")});
  CHECK(!contains(last.err, "note: "));
  CHECK(contains(read_file(folder / "page.html"), rows_of(900 + 11 * 8)));
  for (const char* command : {"inspect", "report"}) {
    expect_error(run_orrery({command, run, "--example=held_out:12"}))
        .names("--example")
        .value("held_out:12")
        .value("12 examples")
        .value("held_out:11")
        .offers("choose one")
        .offers("--text");
    for (const char* wrong : {"held_out", "17", "held_out:", "held_out:-1", "held_out:1.5"})
      expect_error(run_orrery({command, run, std::string("--example=") + wrong}))
          .names("--example")
          .value(wrong)
          .offers("--example=held_out:17");
    expect_error(run_orrery({command, run, "--example=held_out:1", "--text=abe"}))
        .names("--example")
        .value("held_out:1")
        .names("--text")
        .offers("leave");
  }
  CHECK(contains(inspect({run}).out, "Heads: Metrics of each head"));
  fs::rename(folder / "text.txt", folder / "moved.txt");
  refusal({run}).names("text.txt").names("--data").offers("--text");
  CHECK(contains(inspect({run, "--text=abe"}).out, "Heads: "));

  const std::string records = [] {
    std::string all;
    for (int i = 0; i < 8; ++i)
      all += std::string(1, static_cast<char>(i % 2)) + std::string(3072, static_cast<char>(40 * i));
    return all;
  }();
  fs::create_directory(folder / "cifar");
  folder.write("cifar/data_batch_1.bin", records);
  folder.write("cifar/test_batch.bin", records);
  folder.write("cifar/batches.meta.txt", "even\nodd\n");
  const Words of_images = {"--batch_size=2", "--steps=2", "--evaluate_every=0", "--metrics=none"};
  const Words vit = Words{"--model=vit", "--layers=1", "--width=16", "--heads=2"} + of_images,
              resnet = Words{"--model=resnet", "--width=4", "--blocks=1"} + of_images;
  const std::vector<Words> runs = {
      vit + Words{"--patch=7", "--data=" + scraps + "/images/fashion"},
      vit + Words{"--patch=8", "--data=" + (folder / "cifar")},
      vit + Words{"--patch=4", "--image_size=8", "--data=" + scraps + "/images/shapes"},
      resnet + Words{"--data=" + (folder / "cifar")},
      {"--task=algorithmic", "--problem=copy(length=8)", "--layers=1", "--heads=2", "--width=16", "--context=16",
       "--batch_size=2", "--steps=2", "--evaluate_every=0"},
      {"--model=stream", "--data=" + (folder / "moved.txt"), "--layers=1", "--heads=2", "--width=16", "--context=8",
       "--cache_length=8", "--attention=softmax(span=adaptive_span(8, R=4))", "--batch_size=2", "--steps=2",
       "--evaluate_every=0"},
      {"--model=translation-small", "--layers=1", "--width=16", "--heads=2", "--steps=2", "--evaluate_every=0",
       "--data=" + scraps + "/translation/bible.tsv", "--source_column=4", "--target_column=3",
       "--tokenizer=sentence_piece(vocabulary=150)", "--context=256"}};
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::string out = folder / ("run" + std::to_string(i));
    CAPTURE(runs[i]);
    const Outcome trains = run_orrery(Words{"train", "--out=" + out} + runs[i]);
    REQUIRE_MESSAGE(is_complete(trains), trains.err);
    const Outcome captured = inspect({out});
    Message(captured.err).names("first").value("held-out").offers("--text");
    CHECK(contains(captured.out, ": "));
    CHECK(std::count(captured.out.begin(), captured.out.end(), '\n') > 5);
    const auto analyzed = [&](const Words& example) { return inspect(Words{out, "--analysis=all"} + example).out; };
    CHECK(analyzed({"--example=held_out:0"}) == analyzed({}));
    CHECK(analyzed({"--example=held_out:1"}) != analyzed({}));
    refusal({out, "--example=held_out:1000000"}).names("--example").value("1000000").offers("choose one");
    const Outcome report = run_orrery({"report", out, "--example=held_out:1", "--out=" + (folder / "report.html")});
    REQUIRE_MESSAGE(report.code == 0, report.err);
    CHECK(contains(read_file(folder / "report.html"), "Example: held_out:1 of the run's"));
  }
  const std::string plain = folder / "plain";
  REQUIRE(is_complete(
      run_orrery(Words{"train", "--out=" + plain, "--data=" + (folder / "cifar"), "--normalization=none"} + resnet)));
  CHECK(contains(inspect({plain}).out, "Predictions: Most likely classes"));  // no other analysis supports it
  expect_error(run_orrery({"inspect", plain, "--analysis=heads"})).names("inspect").names("heads").offers("--hooks=*");
  CHECK(inspect({plain, "--hooks=*"}).code == 0);
}

TEST_CASE("inspect: --examples summarizes metrics over evenly spread held-out examples, with the level of chance") {
  const Folder folder;
  const std::string run = trained_run(folder, "run");  // 12 held-out windows of 8 characters
  const Words analyses = {"--analysis=heads,logit_lens,ablation"};
  const auto metrics_of = [&](const Words& words) {
    return Json::parse(inspect(Words{run, "--json=yes"} + words).out)["metrics"];
  };
  const Json many = metrics_of({"--examples=5"});  // these are the default analyses
  CHECK(metrics_of(analyses + Words{"--examples=5"}) == many);
  std::vector<Json> each;
  for (const int number : {0, 2, 4, 7, 9})
    each.push_back(metrics_of(analyses + Words{"--example=held_out:" + std::to_string(number)}));
  for (const char* metric : {"heads/entropy/blocks.0.attention.1", "heads/induction/blocks.0.attention.0",
                             "logit_lens/lens_loss/blocks.0.attention", "logit_lens/lens_accuracy/embedding",
                             "ablation/loss", "ablation/without/blocks.0.attention.head.1"}) {
    CAPTURE(metric);
    double mean = 0, squares = 0;
    for (const Json& one : each) mean += one.at(metric).get<double>() / 5;
    for (const Json& one : each) squares += std::pow(one.at(metric).get<double>() - mean, 2);
    const double deviation = std::sqrt(squares / 4), half = 2.7764451 * deviation / std::sqrt(5.0);  // t of 4 degrees
    const auto summary = [&](const std::string& ending) { return many.at(metric + ending).get<double>(); };
    CHECK(std::abs(summary("") - mean) < 1e-9);
    CHECK(std::abs(summary("/deviation") - deviation) < 1e-9);
    CHECK(std::abs(summary("/low") - (mean - half)) < 1e-6);
    CHECK(std::abs(summary("/high") - (mean + half)) < 1e-6);
  }
  // Equal weights on all characters up to the own one, and equal probabilities.
  const auto chance = [&](const std::string& metric) { return many.at(metric + "/chance").get<double>(); };
  double first = 0, entropy = 0, previous = 0;
  for (int row = 0; row < 8; ++row) {
    first += 1.0 / (row + 1) / 8, entropy += std::log(row + 1.0) / 8;
    previous += row > 0 ? 1.0 / (row + 1) / 7 : 0;
  }
  CHECK(std::abs(chance("heads/first/blocks.0.attention.0") - first) < 1e-9);
  CHECK(std::abs(chance("heads/previous/blocks.0.attention.1") - previous) < 1e-9);
  CHECK(std::abs(chance("heads/entropy/blocks.0.attention.1") - entropy) < 1e-9);
  CHECK(std::abs(chance("heads/induction/blocks.0.attention.0") - (1.0 / 5 + 1.0 / 6 + 1.0 / 7 + 1.0 / 8) / 4) < 1e-9);
  CHECK(!many.contains("heads/zeros/blocks.0.attention.0/chance"));
  const double choices = std::exp(chance("ablation/loss"));
  CHECK(std::abs(choices - std::round(choices)) < 1e-9);
  CHECK(std::abs(chance("logit_lens/lens_accuracy/embedding") - 1 / choices) < 1e-12);
  // Each example would ablate its own units, so that they are left out, except for a given one.
  for (const auto& [name, value] : many.items()) CHECK(!contains(name, ".unit."));
  CHECK(metrics_of({"--examples=2", "--analysis=ablation", "--slot=3"})
            .contains("ablation/without/blocks.0.feed_forward.unit.3"));
  const Outcome shown = inspect({run, "--examples=12", "--analysis=heads", "--out=" + (folder / "seen.safetensors")});
  CHECK(finds(shown.out, "mean +deviation +95 % from +to +examples +chance"));
  Message(shown.out).value("12 of the run's 12").names("deviation").names("interval");
  const std::string ablated =
      inspect({run, "--examples=12", "--analysis=ablation", "--out=" + (folder / "ablated.safetensors")}).out;
  std::vector<double> effects;  // the largest first
  std::istringstream lines(ablated.substr(ablated.find("without over")));
  for (std::string line, name; std::getline(lines, line);)
    if (double effect = 0; line.starts_with("  blocks.") && std::istringstream(line) >> name >> effect)
      effects.push_back(effect);
  CHECK(effects.size() > 3);
  CHECK(std::is_sorted(effects.rbegin(), effects.rend()));
  const auto file = read_safetensors(folder / "seen.safetensors");
  const Json names = Json::parse(file.metadata.at("arrays"))["heads/first/examples"];  // the value of each example
  CHECK(names["axes"][1]["labels"][1] == "blocks.0.attention.1");
  CHECK(names["axes"][2]["labels"][11] == "held_out:11");
  const auto array = std::find_if(file.tensors.begin(), file.tensors.end(),
                                  [](const auto& each) { return each.name == "heads/first/examples"; });
  REQUIRE(array != file.tensors.end());
  CHECK(array->tensor.shape() == orrery::Shape{1, 2, 12});
  refusal({run, "--examples=13"}).names("--examples").value(13).value("12 examples").offers("--examples=12");
  for (const Words& one : {Words{"--text=abe"}, {"--example=held_out:1"}, {"--hooks=*"}})
    refusal(Words{run, "--examples=2"} + one).names("--examples").value(2).offers("leave");
  refusal({run, "--examples=2", "--patch_from=abe", "--analysis=ablation"}).names("--patch_from").offers("leave");
  refusal({run, "--examples=2", "--analysis=attention"}).value("attention").names("metrics").offers("heads");
}

TEST_CASE("inspect: --checkpoints=all shows metrics at each checkpoint that a run keeps") {
  const Folder folder;
  const std::string run = trained_run(folder, "run", {"--checkpoint_every=1", "--keep_checkpoints=0"});
  const auto metrics_of = [&](const Words& words) {
    return Json::parse(inspect(words + Words{"--json=yes"}).out)["metrics"];
  };
  const std::string loss = "ablation/loss";
  for (const Words& example : {Words{"--examples=3"}, Words{"--example=held_out:1"}, Words{"--text=abeabe"}}) {
    CAPTURE(example);
    const Words last = Words{"--analysis=ablation"} + example;
    const Json all = metrics_of(Words{run, "--checkpoints=all"} + last);
    for (const int step : {1, 2, 3, 4})
      CHECK(all.at(loss + "/step_" + std::to_string(step)) ==
            metrics_of(Words{run + "/step_00000" + std::to_string(step)} + last).at(loss));
    CHECK(all.at(loss + "/step_1") != all.at(loss + "/step_4"));
  }
  const Outcome shown = inspect({run, "--checkpoints=all", "--analysis=ablation", "--html=" + (folder / "page.html")});
  CHECK(finds(shown.out, "step +loss\n +1 "));
  Message(shown.out).value("4 checkpoints");
  CHECK(contains(read_file(folder / "page.html"), "\"title\":\"loss by step\""));
  refusal({run + "/step_000004", "--checkpoints=all"}).names("--checkpoints").value("step_000004").offers("give a run");
  refusal({run, "--checkpoints=some"}).names("checkpoints").value("some").offers("all");
}

TEST_CASE("inspect: examples and options that do not fit the model are refused") {
  const Folder folder;
  const std::string run = trained_run(folder, "run");
  refusal({}).names("inspect").value(0).names("runs").offers("orrery inspect");
  refusal({run, "--text="}).value("text").offers("--text").offers("empty");
  refusal({run, "--text=abe", "--analysis=heds"}).names("analysis").value("heds").offers("'heads'");
  refusal({run, "--text=abe", "--analysis=attention", "--layer=5"})
      .names("layer")
      .value(5)
      .names("attention")
      .offers(0);
  refusal({run, "--txt=abc"}).value("txt").offers("'text'");
  for (const Words& unread : {Words{"--image", "x.png"}, {"--label", "0"}, {"--source", "ab"}, {"--target", "ab"}})
    refusal({run, "--text=abe", unread[0] + "=" + unread[1]}).names(unread[0]).value("--text").offers("leave it out");
  refusal({run, "--text=abe", "--patch_from=abd"})
      .names("inspect: --patch_from")
      .names("ablation")
      .offers("--analysis=ablation");
  refusal({run, "--text=abe", "--corpus=x.txt", "--analysis=heads"}).names("--corpus").offers("--analysis=neurons");
  refusal({folder / "nothing", "--text=abe"}).names("folder").value(folder / "nothing").offers("orrery train");
  fs::create_directory(folder / "empty");
  refusal({folder / "empty", "--text=abe"}).names(folder / "empty").names("checkpoint").offers("run");
  CHECK(contains(run_orrery({"inspect", "--help"}).out, "heads: metrics of each head"));
}

TEST_CASE("report: analyses are included; their default example is held out or, without data, generated") {
  const Folder folder;
  const std::string run = trained_run(folder, "run"), page = folder / "page.html";
  const auto made = [&](const Words& more) {
    const Outcome outcome = run_orrery(Words{"report", run, "--out=" + page} + more);
    INFO(outcome.err);
    CHECK(outcome.code == 0);
    return read_file(page);
  };
  CHECK(contains(made({}), "\"title\":\"Metrics of each head\""));
  CHECK(contains(made({}), "Example: held_out:0 of the run's held-out data."));
  fs::rename(folder / "text.txt", folder / "moved.txt");
  CHECK(contains(made({}), "Example: a text that the model generates."));
  expect_error(run_orrery({"report", run, "--example=held_out:0"})).names("text.txt").names("--data").offers("--text");
  fs::rename(folder / "moved.txt", folder / "text.txt");
  CHECK(!contains(made({"--analysis=none"}), "\"title\":\"Metrics of each head\""));
  CHECK(contains(made({"--text=abeabe", "--analysis=attention"}), "\"rows\":[\"a\",\"b\",\"e\",\"a\",\"b\",\"e\"]"));
  const std::string cut = made({"--text=abedkabedkabe", "--analysis=attention"});
  CHECK(contains(cut, "Note: the text has 13 tokens, but the context is 8; the example is its last tokens."));
  CHECK(contains(cut, "\"rows\":[\"a\",\"b\",\"e\",\"d\",\"k\",\"a\",\"b\",\"e\"]"));
  expect_error(run_orrery({"report", run, "--source=abe"})).names("report").offers("--text").offers("--source");
  const Outcome unknown = run_orrery({"report", run, "--analysis=heds", "--out=" + (folder / "none.html")});
  expect_error(unknown).names("analysis").value("heds").offers("'heads'");
  CHECK(!fs::exists(folder / "none.html"));
}

TEST_CASE("inspect: logit lens, ablation, neurons and normalization curves work from the command line") {
  const Folder folder;
  const std::string run = trained_run(folder, "run", {"--layers=2", "--normalization=dyt"}),
                    page = folder / "page.html";
  const Outcome depth = inspect({run, "--text=abeabe", "--analysis=logit_lens", "--position=2"});
  CHECK(contains(depth.out, "Logit lens: Top prediction after each sublayer"));
  CHECK(contains(depth.out, "Logit lens: Predictions at position 2, 'e'"));
  refusal({run, "--text=abeabe", "--analysis=logit_lens", "--position=6"}).names("position").value(6).offers(5);
  const Outcome causes =
      inspect({run, "--text=abeabe", "--patch_from=abedbe", "--analysis=ablation", "--top=4", "--html=" + page});
  CHECK(contains(causes.out, "blocks.1.attention"));
  CHECK(contains(read_file(page), "\"group\":\"Ablation\""));
  refusal({run, "--text=abeabe", "--patch_from=ab", "--analysis=ablation"}).value(6).value(2).offers("tokens");
  const std::string corpus = folder.write("corpus.txt", tiny_text());
  const Outcome memories =
      inspect({run, "--text=abeabe", "--corpus=" + corpus, "--analysis=neurons", "--layer=0", "--slot=3"});
  CHECK(contains(memories.out, "Neurons: "));
  // Documents are read as in training: a line break ends each.
  const auto found_in = [&](const std::string& file, const std::string& content) {
    return inspect({run, "--text=abeabe", "--corpus=" + folder.write(file, content), "--analysis=neurons", "--layer=0"})
        .out;
  };
  const std::string plain = found_in("lines.txt", "abe\nbea\n");
  CHECK(found_in("lines.jsonl", "{\"text\": \"abe\"}\n{\"id\": 1, \"text\": \"bea\"}\n") == plain);
  CHECK(found_in("lines.csv", "id,text\n1,abe\n2,bea\n") == plain);
  // The search of a file longer than 16 MiB covers its beginning, up to the end of a line.
  const std::string longer = folder / "longer.txt";  // lines of 7 bytes
  REQUIRE(run_shell("yes abeabe | head -c 20000000 > '" + longer + "'").code == 0);
  REQUIRE(run_shell("gzip -1 < '" + longer + "' > '" + longer + ".gz'").code == 0);
  for (const std::string& file : {longer, longer + ".gz"}) {
    const Outcome beginning =
        inspect({run, "--text=abeabe", "--corpus=" + file, "--analysis=neurons", "--layer=0", "--slot=3"});
    CHECK(contains(beginning.out, "Neurons: "));
    Message(beginning.err).names("note").names(file).value("16,777,215").value("16,777,216");
  }
  const std::string tokens = folder / "tokens";
  REQUIRE(run_orrery({"prepare", "--input=" + corpus, "--out=" + tokens, "--tokenizer=byte"}).code == 0);
  for (const std::string& file : {tokens + "/train.bin", tokens + "/val.bin"}) {
    refusal({run, "--text=abeabe", "--corpus=" + file, "--analysis=neurons"})
        .names(file)
        .value("tokens")
        .offers("text");
    refusal({run, "--text=FILE:" + file, "--analysis=heads"}).names(file).value("tokens").offers("text");
  }
  refusal({run, "--text=abeabe", "--analysis=neurons", "--slot=999"}).names("slot").value(999).names("feed_forward");
  CHECK(contains(inspect({run, "--text=abeabe", "--analysis=normalization_curves"}).out, "blocks.0.attention_norm"));
  CHECK(contains(inspect({run, "--text=abeabe", "--analysis=all"}).out, "Heads: "));
}

TEST_CASE("inspect: former names of analyses and hooks give the same output and are not listed") {
  const Folder folder;
  const std::string run = trained_run(folder, "run", {"--layers=1", "--normalization=dyt"}),
                    corpus = folder / "text.txt";
  const auto shown = [&](const Words& words) { return inspect(Words{run, "--text=abeabe"} + words).out; };
  CHECK(shown({"--analysis=causes,depth,curves,memories"}) ==
        shown({"--analysis=ablation,logit_lens,normalization_curves,neurons"}));
  CHECK(shown({"--analysis=causes", "--patch_from=abedbe"}) == shown({"--analysis=ablation", "--patch_from=abedbe"}));
  CHECK(shown({"--analysis=memories", "--corpus=" + corpus}) == shown({"--analysis=neurons", "--corpus=" + corpus}));
  CHECK(shown({"--hooks=*.read,*.hidden_before"}) == shown({"--hooks=*.head_output,*.pre_activation"}));
  const std::string help = run_orrery({"inspect", "--help"}).out, listed = run_orrery({"list", "analyses"}).out;
  for (const char* former : {"causes", "memories", "  depth:", "  curves:"}) {
    CHECK(!contains(help, former));
    CHECK(!contains(listed, former));
  }
  CHECK(run_orrery({"list", "causes"}).out == run_orrery({"list", "ablation"}).out);
  CHECK(run_orrery({"list", "sm-ln-g"}).out == run_orrery({"list", "pre-ln-gelu"}).out);
  CHECK(run_orrery({"list", "largest_score"}).out == run_orrery({"list", "max_score"}).out);
  // A file of metrics that an older program wrote can be replaced.
  folder.write("seen.csv", "figure,value\ncauses/loss,2.5\n");
  inspect({run, "--text=abeabe", "--analysis=ablation", "--out=" + (folder / "seen.csv")});
  CHECK(contains(read_file(folder / "seen.csv"), "ablation/loss,"));
}
