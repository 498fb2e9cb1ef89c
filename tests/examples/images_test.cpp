// Images and classes as users have them (tests/cases), with models and folders of other programs.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "tests/examples/report_data.h"
#include "tests/support/message.h"

using orrery::testing::expect_error;
using orrery::testing::find_word;
using orrery::testing::finds;
using orrery::testing::Message;
namespace fs = std::filesystem;

namespace {

using Words = std::vector<std::string>;
const std::string cases = ORRERY_SOURCE_DIR "/tests/cases/",
                  scraps = ORRERY_SOURCE_DIR "/tests/models/images/shapes/train/";

void import(const std::string& from, const std::string& run) {
  const Outcome outcome = run_orrery({"import", from, "--out=" + run});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
}
Outcome classify(const std::string& run, const Words& more) {
  const Outcome outcome = run_orrery(Words{"classify", "--checkpoint=" + run} + more);
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  return outcome;
}
Outcome train(const std::string& data, const std::string& run) {
  return run_orrery({"train", "--model=vit", "--layers=1", "--heads=2", "--width=16", "--patch=4", "--steps=2",
                     "--batch_size=2", "--evaluate_every=0", "--metrics=none", "--validation_fraction=0.25",
                     "--data=" + data, "--out=" + run});
}
// Adds four images in a folder with this name.
void add_class(const std::string& set, const std::string& name) {
  fs::create_directories(set);
  fs::copy(scraps + "rings", set + "/" + name, fs::copy_options::recursive);
}
bool has_word(const Outcome& outcome, const std::string& word) {
  return find_word(outcome.out + outcome.err, word) != std::string::npos;
}

}  // namespace

TEST_CASE("images: folders named by numbers are the classes with these numbers") {
  const Folder folder;
  const std::string run = folder / "run", images = folder / "pictures";
  import(cases + "numeric_classes/model", run);
  const auto evaluate = [&](const std::string& data) {
    const Outcome outcome = run_orrery({"evaluate", "--checkpoint=" + run, "--validation_data=" + data});
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    return outcome;
  };
  const Outcome whole = evaluate(cases + "numeric_classes/images");
  CHECK(contains(whole.out, "24 images\n"));
  CHECK(contains(whole.out, "\naccuracy 1.0000\n"));
  fs::copy(cases + "numeric_classes/images", images, fs::copy_options::recursive);
  for (const char* digit : {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"})
    fs::rename(images + "/val/" + digit, images + "/val/0" + digit);
  CHECK(contains(evaluate(images).out, "\naccuracy 1.0000\n"));
  for (const char* absent : {"00", "04", "10"}) fs::remove_all(images + "/val/" + absent);
  const Outcome some = evaluate(images);
  CHECK(contains(some.out, "18 images\n"));
  CHECK(contains(some.out, "\naccuracy 1.0000\n"));
}

TEST_CASE("images: classify and report name the classes of folders with numbers, in the order of the numbers") {
  const Folder folder;
  const std::string run = folder / "run", pictures = cases + "numeric_classes/images";
  const Outcome trained =
      run_orrery({"train", "--model=vit", "--layers=1", "--heads=2", "--width=16", "--patch=4", "--steps=150",
                  "--batch_size=24", "--learning_rate=0.01", "--evaluate_every=0", "--metrics=none",
                  "--data=" + pictures + "/val", "--validation_data=" + pictures, "--out=" + run});
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  const std::string found = classify(run, {pictures}).out;
  for (int number = 0; number < 12; ++number)
    for (const char* file : {"0", "1"}) {
      const std::string name = std::to_string(number);
      CHECK(contains(found, "/val/" + name + "/" + file + ".png  " + name + " 0."));
    }
  // Class 10 is 8 in the order of text.
  const Outcome reported =
      run_orrery({"report", run, "--image=" + pictures + "/val/10/0.png", "--label=10", "--analysis=logit_lens"});
  REQUIRE_MESSAGE(reported.code == 0, reported.err);
  const auto rows = report_section(report_data(read_file(run + "/report.html")),
                                   "Predictions at position 0, 'whole example'")["rows"];
  const auto& last = rows.back();  // state after, top prediction, p, rank, -ln p
  CHECK(last[1] == "10");
  CHECK(last[3] == "1");
}

TEST_CASE("images: a vision transformer without preprocessor_config.json classifies as in Transformers") {
  const Folder folder;
  const std::string at = cases + "vit_without_preprocessor/";
  const Outcome imported = run_orrery({"import", at + "model", "--out=" + (folder / "run")});
  REQUIRE_MESSAGE(imported.code == 0, imported.err);
  CHECK(has_word(imported, "preprocessor_config.json"));
  CHECK(has_word(imported, "pixel_mean=0.5"));
  CHECK(contains(classify(folder / "run", {"--top=4", at + "p.png"}).out,
                 "p.png  LABEL_1 0.7189  LABEL_2 0.1657  LABEL_3 0.0583  LABEL_0 0.0571\n"));
}

TEST_CASE("images: models with thousands of classes are imported and exported") {
  const Folder folder;
  for (const auto& each : {std::pair{"4900", "p.png  kind 01743 0.0022  kind 02378 0.0022  kind 03657 0.0020\n"},
                           {"6000", "p.png  kind 05335 0.0017  kind 01743 0.0016  kind 03657 0.0013\n"},
                           {"21843", "p.png  kind 16383 0.0006  kind 06284 0.0005  kind 17088 0.0005\n"}}) {
    const auto& classes = each.first;
    const auto& most_likely = each.second;
    CAPTURE(classes);
    const std::string model = folder / (std::string("model") + classes), run = folder / (std::string("run") + classes);
    REQUIRE(run_shell("python3 '" + cases + "many_classes/make.py' " + classes + " '" + model + "'").code == 0);
    import(model, run);
    CHECK(contains(classify(run, {"--top=3", cases + "many_classes/p.png"}).out, most_likely));
  }
  const Outcome exported = run_orrery({"export", folder / "run21843", "--out=" + (folder / "theirs")});
  REQUIRE_MESSAGE(exported.code == 0, exported.err);
  import(folder / "theirs", folder / "again");
}

TEST_CASE("images: unsupported files are counted by kind in one line") {
  const Folder folder;
  const std::string set = cases + "other_endings/set";
  const Outcome trained = train(set, folder / "run");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  CHECK(contains(trained.err, "images: 6 "));
  Message(trained.out + trained.err)
      .names("warning")
      .value(8)
      .names(set)
      .value("4 .bmp")
      .value("4 .webp")
      .names(set + "/train/a/x0.webp");
  const Outcome evaluated =
      run_orrery({"evaluate", "--checkpoint=" + (folder / "run"), "--validation_data=" + set + "/train"});
  Message(evaluated.out + evaluated.err).value("4 .bmp").value("4 .webp").names(set + "/train/a/x0.webp");
  const Outcome classified = classify(folder / "run", {set + "/train/a"});
  Message(classified.err).value("4 .bmp").value("4 .webp").names(set + "/train/a/x0.webp");
  CHECK(std::count(classified.out.begin(), classified.out.end(), '\n') == 3);

  const std::string deep = folder / "deep";
  for (const char* name : {"a", "b"}) add_class(deep, name);
  fs::create_directories(deep + "/b/more");
  fs::copy(scraps + "rings/0.png", deep + "/b/more/0.png");
  fs::copy(scraps + "rings/0.png", deep + "/0.png");
  folder.write("deep/b/.hidden", "");
  folder.write("deep/b/more/list", "");
  const Outcome deeper = train(deep, folder / "deep_run");
  REQUIRE_MESSAGE(is_complete(deeper), deeper.err);
  Message(deeper.out + deeper.err)
      .names("warning")
      .value(3)
      .names(deep)
      .value("1 in deeper folders")
      .value("1 next to")
      .value("1 without");
}

TEST_CASE("images: a folder that links to a parent folder is read once, for images and for texts") {
  const Folder folder;
  const std::string set = folder / "set";
  for (const char* name : {"a", "b"}) add_class(set, name);
  fs::create_directory_symlink(set, set + "/loop");
  fs::create_directory_symlink("..", set + "/a/loop");
  fs::create_directory_symlink(set + "/a", set + "/b/loop");  // a's loop leads back to both
  const Outcome trained = train(set, folder / "run");
  REQUIRE_MESSAGE(is_complete(trained), trained.err);
  CHECK(finds(trained.err, "images: 6 .* 2 "));  // training, validation
  const Outcome classified = classify(folder / "run", {set});
  CHECK(contains(classified.out, set + "/a/0.png  "));
  CHECK(!contains(classified.out, "/loop/loop/"));
  const std::string texts = folder / "texts";
  fs::create_directories(texts + "/inner");
  folder.write("texts/inner/text.txt", tiny_text());
  fs::create_directory_symlink("..", texts + "/inner/loop");
  const Outcome text = run_orrery(Words{"train", "--data=" + texts, "--out=" + (folder / "text_run")} + tiny);
  REQUIRE_MESSAGE(text.code == 0, text.err);
  CHECK(finds(text.err, "text: 900 .* 100 "));
}

TEST_CASE("images: train, evaluate and classify report an Exif orientation and do not apply it") {
  const Folder folder;
  const std::string set = folder / "set";
  for (const char* name : {"a", "b"}) {
    fs::create_directories(set + "/" + name);
    for (const char* file : {"1.jpg", "2.jpg"})
      fs::copy(cases + "image_forms/rotated.jpg", set + "/" + name + "/" + file);
  }
  const Outcome trained = run_orrery({"train", "--model=resnet", "--width=4", "--image_size=8", "--data=" + set,
                                      "--validation_fraction=0.5", "--steps=1", "--batch_size=2", "--metrics=none",
                                      "--out=" + (folder / "run")});
  REQUIRE_MESSAGE(is_complete(trained), trained.err);
  Message(trained.out + trained.err).names("warning").value(4).names(set).value("4 of orientation 6");
  const Outcome classified = classify(folder / "run", {set, cases + "image_forms/rgb.png"});
  Message(classified.err).value("4 of orientation 6").names(set + "/a/1.jpg");
  const Outcome evaluated = run_orrery({"evaluate", "--checkpoint=" + (folder / "run"), "--validation_data=" + set});
  Message(evaluated.out + evaluated.err).value("4 of orientation 6").names(set + "/a/1.jpg");
}

TEST_CASE("images: a class folder whose name is not UTF-8 is refused before a run begins") {
  const Folder folder;
  const std::string set = folder / "set";
  for (const char* name : {"a", "gr\xfcn"}) add_class(set, name);
  expect_error(train(set, folder / "run")).names("set").value("gr\\xfcn").value(2).offers("rename");
  CHECK(!fs::exists(folder / "run"));
}
