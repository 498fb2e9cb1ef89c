// orrery inspect on held-out examples: one, many, and at each checkpoint of a run.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
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

namespace {

const std::string scraps = ORRERY_SOURCE_DIR "/tests/models";
std::string text_in_quotes(char c) { return std::string("\"") + c + "\""; }

}  // namespace

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
    for (const auto& [key, value] : {std::pair("--text", "abe"), std::pair("--label", "2"), std::pair("--target", "a")})
      expect_error(run_orrery({command, run, "--example=held_out:1", std::string(key) + "=" + value}))
          .names("--example")
          .value("held_out:1")
          .offers("leave it out")
          .offers(key);
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
  for (const char* const of_attention : {"heads", "logit_attribution", "attention_score", "gradient_times_input"})
    expect_error(run_orrery({"inspect", plain, std::string("--analysis=") + of_attention}))
        .names("inspect")
        .names(of_attention)
        .offers("--hooks=*");
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
  const Json one = metrics_of({"--examples=1"});
  CHECK((one.contains("ablation/loss") && !one.contains("ablation/loss/deviation")));
  refusal({run, "--examples=13"}).names("--examples").value(13).value("12 examples").offers("--examples=12");
  for (const Words& one : {Words{"--text=abe"}, {"--example=held_out:1"}, {"--hooks=*"}})
    refusal(Words{run, "--examples=2"} + one).names("--examples").value(2).offers("leave");
  refusal({run, "--examples=2", "--patch_from=abe", "--analysis=ablation"}).names("--patch_from").offers("leave");
  refusal({run, "--examples=2", "--analysis=attention"}).value("attention").names("metrics").offers("heads");
}

TEST_CASE("inspect and evaluate warn if the run's data are not those that it was trained on") {
  const Folder folder;
  const std::string held_out = folder.write("held_out.txt", tiny_text());
  for (const Words& more : {Words{}, Words{"--validation_data=" + held_out}}) {
    const std::string run = trained_run(folder, more.empty() ? "run" : "with_held_out", more);
    const std::string file = more.empty() ? folder / "text.txt" : held_out;
    const auto warned = [&](const Words& words) {
      const Outcome outcome = run_orrery(words);
      REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
      return contains(outcome.err, "warning: " + file + " (");
    };
    for (const char* const command : {"inspect", "evaluate"}) CHECK_FALSE(warned({command, run}));
    folder.write(file.substr(file.rfind('/') + 1), tiny_text() + "abe");
    for (const char* const command : {"inspect", "evaluate"}) CHECK(warned({command, run}));
    CHECK_FALSE(warned({"inspect", run, "--text=abe"}));
    CHECK_FALSE(warned({"evaluate", run, "--validation_data=" + file}));
  }
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
