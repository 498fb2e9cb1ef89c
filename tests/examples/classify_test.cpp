// orrery train and classify on small sets of images: the output that a user gets.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/examples/program.h"
#include "tests/support/message.h"

using orrery::testing::expect_error;
using orrery::testing::finds;
using orrery::testing::matches_in;
using orrery::testing::Message;

namespace {

const std::string scraps = ORRERY_SOURCE_DIR "/tests/models/images", shapes = scraps + "/shapes/val";

std::vector<std::string> train(const Folder& folder, const std::vector<std::string>& more) {
  return std::vector<std::string>{"train", "--out=" + (folder / "run"), "--evaluate_every=0"} + more;
}

}  // namespace

TEST_CASE("classify: a trained model names shapes correctly, with probabilities that sum to 1") {
  const Folder folder;
  const Outcome trained =
      run_orrery(train(folder, {"--model=resnet", "--width=8", "--data=" + scraps + "/shapes", "--batch_size=8",
                                "--steps=60", "--optimizer=sgd(momentum=0.9)", "--learning_rate=0.1", "--flip"}));
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  CHECK(finds(trained.err, "images: 8 .* 4 "));  // training, validation
  CHECK(finds(trained.err, "images/s +MFU n/a +\\d+ MB"));
  CHECK(finds(last_line(trained.out), "validation loss \\d\\.\\d+, accuracy [01]\\.\\d{4}"));
  const Outcome found = run_orrery({"classify", folder / "run", "--top=2", shapes, scraps + "/large.png"});
  REQUIRE_MESSAGE(found.code == 0, found.err);
  CHECK(finds(found.out, "val/rings/0\\.png  rings 0\\.\\d{4}  stripes 0\\.\\d{4}\n"));
  CHECK(finds(found.out, "val/stripes/0\\.png  stripes 0\\.\\d{4}  rings 0\\.\\d{4}\n"));
  CHECK(contains(found.out, "large.png  "));
  const auto json = nlohmann::ordered_json::parse(
      run_orrery({"classify", "--checkpoint=" + (folder / "run"), "--top=2", "--json", shapes}).out);
  REQUIRE(json.size() == 4);
  CHECK(json[0]["path"].get<std::string>().ends_with("rings/0.png"));
  CHECK(json[0]["classes"][0]["class"] == "rings");
  const double most = json[0]["classes"][0]["probability"], least = json[0]["classes"][1]["probability"];
  CHECK(most + least == doctest::Approx(1));
  REQUIRE(run_shell("gzip -c '" + scraps + "/large.png' > '" + (folder / "large.png.gz") + "'").code == 0);
  CHECK(contains(run_orrery({"classify", "--checkpoint=" + (folder / "run"), folder / "large.png.gz"}).out,
                 "large.png.gz  "));
  const std::string broken = folder.write("broken.png", "no picture");
  const Outcome refused =
      run_orrery({"classify", "--checkpoint=" + (folder / "run"), broken, folder / "none.png", scraps + "/large.png"});
  expect_error(refused).names("classify").value(broken).names("classify").value(folder / "none.png");
  CHECK(contains(refused.out, "large.png  "));  // it continues after the files that it skips
  CHECK(!contains(refused.out, "broken.png"));
  const Outcome skipped =
      run_orrery({"classify", "--checkpoint=" + (folder / "run"), "--skip_broken", broken, scraps + "/large.png"});
  CHECK(skipped.code == 0);
  Message(skipped.out).names(broken).offers("PNG");
  const std::string checkpoint = "--checkpoint=" + (folder / "run");
  expect_error(run_orrery({"classify", checkpoint})).names("classify").value("image").offers("PNG");
  expect_error(run_orrery({"generate", checkpoint})).names("generate").value("model").offers("language");
}

TEST_CASE("classify: classes of the model without a name in the data are not printed") {
  const Folder folder;
  const std::string run = folder / "run";
  for (const char* name : {"8", "9", "1"})
    REQUIRE(run_shell("mkdir -p '" + (folder / "set") + "' && cp -r '" + scraps + "/shapes/train/rings' '" +
                      (folder / "set/") + name + "'")
                .code == 0);
  const Outcome trained = run_orrery(
      train(folder, {"--model=vit", "--layers=1", "--heads=2", "--width=16", "--patch=4", "--steps=1", "--batch_size=4",
                     "--classes=14", "--validation_fraction=0.3", "--data=" + (folder / "set")}));
  REQUIRE_MESSAGE((trained.code == 0 || trained.code == 3), trained.err);
  const Outcome found = run_orrery({"classify", "--checkpoint=" + run, "--top=14", scraps + "/shapes/val/rings/0.png"});
  REQUIRE_MESSAGE(found.code == 0, found.err);
  std::map<std::string, double> probabilities;
  for (const auto& match : matches_in(found.out, "  (\\S+) (\\d\\.\\d{4})"))  // class and probability
    CHECK(probabilities.emplace(match[1], std::stod(match[2])).second);
  CHECK(probabilities.size() == 3);
  double sum = 0;
  for (const auto& [name, probability] : probabilities) sum += probability;
  CHECK(std::abs(sum - 1) < 2e-4);
}

TEST_CASE("classify: a language model is refused") {
  const Folder folder;
  REQUIRE(run_orrery(train(folder, tiny + std::vector<std::string>{"--data=" + folder.write("t", tiny_text())})).code ==
          0);
  expect_error(run_orrery({"classify", "--checkpoint=" + (folder / "run"), shapes}))
      .names("classify")
      .value("model")
      .offers("image");
}

TEST_CASE("images: the committed configurations train on small data sets") {
  for (const auto& each : {std::pair<std::string, std::string>{"vit-fashion", "fashion"}, {"resnet-cifar", "shapes"}}) {
    const auto& config = each.first;
    const auto& data = each.second;
    CAPTURE(config);
    const Folder folder;
    const Outcome run = run_orrery(train(folder, {"--config=" ORRERY_SOURCE_DIR "/examples/configs/" + config + ".toml",
                                                  "--data=" + scraps + "/" + data, "--steps=2", "--batch_size=4"}));
    CHECK_MESSAGE(is_complete(run), run.err);
    CHECK(contains(last_line(run.out), "accuracy"));
  }
}

TEST_CASE("images: a model is evaluated on a test set alone, and init_from with other classes uses a new head") {
  const Folder folder;
  const auto classes = [&](const std::string& name, const std::vector<std::string>& names) {
    for (size_t i = 0; i < names.size(); ++i) {
      std::filesystem::create_directories(folder / name);
      std::filesystem::copy(scraps + "/shapes/train/" + (i % 2 == 0 ? "rings" : "stripes"),
                            folder / (name + "/" + names[i]), std::filesystem::copy_options::recursive);
    }
    return folder / name;
  };
  const std::string run = folder / "run", same = classes("same", {"rings", "stripes"}),
                    numbers = classes("numbers", {"0", "1"}), others = classes("others", {"a", "b", "c"});
  const std::vector<std::string> small = {"--steps=2", "--batch_size=4", "--evaluate_every=0",
                                          "--validation_fraction=0.25"};
  const Outcome trained = run_orrery(train(folder, {"--model=resnet", "--width=4", "--data=" + same}) + small);
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  std::filesystem::remove_all(same);
  const auto evaluate = [&](const std::string& data) {
    return run_orrery({"evaluate", "--checkpoint=" + run, "--validation_data=" + data});
  };
  const Outcome evaluated = evaluate(shapes);
  REQUIRE_MESSAGE(evaluated.code == 0, evaluated.err);
  CHECK(contains(evaluated.out, "4 images\nloss "));
  CHECK(contains(evaluated.out, "\naccuracy "));
  Message(evaluate(numbers).err).names(numbers).value("0, 1").offers("rings, stripes").names("order");
  expect_error(evaluate(others))
      .names("evaluate")
      .value(others)
      .value("a, b, c")
      .value("never trained on 'a'")
      .offers("rings, stripes")
      .offers("--among=FILE")
      .offers("--init_from");
  const auto among = [&](const std::string& names, const std::string& data = shapes) {
    return run_orrery({"evaluate", run, "--validation_data=" + data, "--among=" + folder.write("classes.txt", names)});
  };
  const Outcome rings = among("rings\n");
  REQUIRE_MESSAGE(rings.code == 0, rings.err);
  CHECK(contains(rings.out, "2 images\nloss "));
  CHECK(contains(rings.out, "\naccuracy 1.0000\n"));  // no other class competes
  Message(rings.err).value("1 of the model's 2 classes").names("classes.txt").value("2 of the 4 images");
  expect_error(among("rings\ndots\n")).names("evaluate").names("classes.txt:2").value("dots").offers("rings, stripes");
  expect_error(among("rings\n", others)).names("evaluate").value(others).value("a, b, c");
  expect_error(run_orrery({"evaluate", run, "--few_shot=1", "--data=" + shapes, "--among=x"})).names("--among=x");

  using Words = std::vector<std::string>;
  const auto begin = [&](const std::string& data, const std::string& out, const Words& more = {}) {
    return run_orrery(Words{"train", "--init_from=" + run, "--data=" + data, "--out=" + out} + small + more);
  };
  const Outcome kept = begin(numbers, folder / "kept"), fresh = begin(others, folder / "fresh");
  CHECK_MESSAGE(kept.code == 0, kept.err);
  CHECK(!contains(kept.out + kept.err, "newly initialized"));
  CHECK_MESSAGE(fresh.code == 0, fresh.err);
  Message(fresh.out + fresh.err)
      .names(others)
      .value("a, b, c")
      .value("rings, stripes")
      .names("head")
      .offers("newly initialized");
  CHECK(contains(run_orrery({"show", folder / "fresh"}).out, "(3, "));
  for (const auto& [data, out] : {std::pair{numbers, folder / "kept"}, std::pair{others, folder / "fresh"}}) {
    const Outcome resumed = begin(data, out, {"--resume", "--steps=3"});
    CHECK_MESSAGE(resumed.code == 0, resumed.err);
  }
}

TEST_CASE("images: init_from inherits pixel statistics and loss, unless others are given") {
  using Words = std::vector<std::string>;
  const Folder folder;
  const Words data = {"--data=" + scraps + "/shapes", "--batch_size=4", "--warmup_steps=1"};
  REQUIRE(is_complete(run_orrery(
      train(folder, data + Words{"--model=vit", "--layers=1", "--heads=2", "--width=8", "--patch=4", "--steps=2",
                                 "--loss=sigmoid", "--pixel_mean=0.9,0.1,0.9", "--pixel_std=0.3"}))));
  const auto inherited_settings = [&](const std::string& out, const Words& more) {
    const Outcome begun = run_orrery(Words{"train", "--init_from=" + (folder / "run"), "--out=" + (folder / out),
                                           "--steps=1", "--learning_rate=1e-9", "--min_learning_rate=0"} +
                                     data + more);
    REQUIRE_MESSAGE(is_complete(begun), begun.err);
    return read_file(folder / (out + "/settings.toml"));
  };
  const std::string its = inherited_settings("its", {}),
                    given = inherited_settings("given", {"--pixel_mean=0.5", "--loss=softmax"});
  for (const char* line : {"\nloss = \"sigmoid\"\n", "\npixel_mean = \"0.9, 0.1, 0.9\"\n", "\npixel_std = 0.3\n"}) {
    CAPTURE(line);
    CHECK(contains(its, line));
  }
  for (const char* line : {"\nloss = \"softmax\"\n", "\npixel_mean = 0.5\n", "\npixel_std = 0.3\n"}) {
    CAPTURE(line);
    CHECK(contains(given, line));
  }
  const auto evaluated = [&](const std::string& out) {
    const Outcome outcome = run_orrery({"evaluate", "--checkpoint=" + (folder / out)});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return outcome.out;
  };
  CHECK(evaluated("its") == evaluated("run"));
  CHECK(evaluated("given") != evaluated("run"));
}

TEST_CASE("images: a warning reports how many validation images are training data of the run") {
  const Folder folder;
  const std::string data = scraps + "/shapes/train";  // two classes of four images each
  REQUIRE(is_complete(run_orrery(train(folder, {"--model=resnet", "--width=4", "--data=" + data, "--batch_size=4",
                                                "--steps=1", "--validation_fraction=0.25"}))));
  const auto evaluated = [&](const std::string& setting) {
    const Outcome outcome = run_orrery({"evaluate", "--checkpoint=" + (folder / "run"), setting});
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    return outcome.err;
  };
  Message(evaluated("--validation_fraction=0.5"))
      .names("warning")
      .value("2 of the 4 images")
      .value("50.0 %")
      .offers("--validation_fraction=0.25");
  Message(evaluated("--validation_data=" + data))
      .names("warning")
      .value("6 of the 8 images")
      .value("75.0 %")
      .offers("--validation_data=PATH");
  for (const std::string& clean : {std::string("--validation_fraction=0.25"), "--validation_data=" + shapes})
    CHECK(!contains(evaluated(clean), "training data"));
}
