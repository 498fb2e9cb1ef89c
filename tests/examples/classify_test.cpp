// orrery train and classify on images: what a user sees of scraps.
#include <doctest/doctest.h>

#include <regex>

#include "tests/examples/program.h"

namespace {

const std::string scraps = ORRERY_SOURCE_DIR "/tests/models/images", shapes = scraps + "/shapes/val";

std::vector<std::string> train(const Folder& folder, const std::vector<std::string>& more) {
  return std::vector<std::string>{"train", "--out=" + (folder / "run"), "--evaluate_every=0"} + more;
}

}  // namespace

TEST_CASE("classify: a model that has learned shapes names them, with shares of one") {
  const Folder folder;
  const Outcome trained =
      run_orrery(train(folder, {"--model=resnet", "--width=8", "--data=" + scraps + "/shapes", "--batch=8",
                                "--steps=60", "--optimizer=sgd(momentum=0.9)", "--learning_rate=0.1", "--flip"}));
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  CHECK(contains(trained.out, "images: 8 images to learn, 4 for validation"));
  CHECK(std::regex_search(trained.out, std::regex("images/s +MFU n/a +\\d+ MB")));
  CHECK(std::regex_search(last_line(trained.out), std::regex("validation loss \\d\\.\\d+, accuracy [01]\\.\\d{4}")));
  const Outcome found =
      run_orrery({"classify", "--checkpoint=" + (folder / "run"), "--top=2", shapes, scraps + "/large.png"});
  REQUIRE_MESSAGE(found.code == 0, found.err);
  CHECK(std::regex_search(found.out, std::regex("val/rings/0\\.png  rings 0\\.\\d{4}  stripes 0\\.\\d{4}\n")));
  CHECK(std::regex_search(found.out, std::regex("val/stripes/0\\.png  stripes 0\\.\\d{4}  rings 0\\.\\d{4}\n")));
  CHECK(contains(found.out, "large.png  "));
  const std::string broken = folder.write("broken.png", "no picture");
  const Outcome refused = run_orrery({"classify", "--checkpoint=" + (folder / "run"), broken});
  CHECK(refused.code == 1);
  CHECK(contains(refused.err, "classify: " + broken + ": it cannot be decoded"));
  const Outcome skipped =
      run_orrery({"classify", "--checkpoint=" + (folder / "run"), "--skip_broken", broken, scraps + "/large.png"});
  CHECK(skipped.code == 0);
  CHECK(contains(skipped.out, "left out: " + broken));
  CHECK(contains(run_orrery({"classify", "--checkpoint=" + (folder / "run")}).err, "classify: no picture; give files"));
  CHECK(contains(run_orrery({"generate", "--checkpoint=" + (folder / "run")}).err,
                 "generate: this model is not a language model"));
}

TEST_CASE("classify: a language model is no model of images") {
  const Folder folder;
  REQUIRE(run_orrery(train(folder, tiny + std::vector<std::string>{"--data=" + folder.write("t", tiny_text())})).code ==
          0);
  CHECK(contains(run_orrery({"classify", "--checkpoint=" + (folder / "run"), shapes}).err,
                 "classify: this model is not a model of images"));
}

TEST_CASE("images: the committed configurations train on scraps") {
  for (const auto& [config, data] :
       {std::pair<std::string, std::string>{"vit-fashion", "fashion"}, {"resnet-cifar", "shapes"}}) {
    CAPTURE(config);
    const Folder folder;
    const Outcome run = run_orrery(train(folder, {"--config=" ORRERY_SOURCE_DIR "/examples/configs/" + config + ".toml",
                                                  "--data=" + scraps + "/" + data, "--steps=2", "--batch=4"}));
    CHECK_MESSAGE(run.code == 0, run.err);
    CHECK(contains(last_line(run.out), "accuracy"));
  }
}
