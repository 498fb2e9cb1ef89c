// Classes of images: saved names, order of folders, and the match between two lists of classes.
#include <doctest/doctest.h>

#include <filesystem>

#include "engine/types/format.h"
#include "models/data/images.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Folder;
namespace fs = std::filesystem;

namespace {

const std::string scraps = ORRERY_SOURCE_DIR "/tests/models/images";

}  // namespace

TEST_CASE("classes: names are restored from JSON, and invalid JSON is an error") {
  const std::vector<std::string> names = {"T-shirt/top", "quote \" and \\", "\xC3\xA9"};
  CHECK(restore_classes(save_classes(names)) == names);
  for (const char* json : {"{}", "{\"classes\": 3}", "{\"classes\": []}", "{\"classes\": [1]}", "[", "null"})
    expect_error([&] { restore_classes(json); }).names("images").names("classes").names("restored");
}

TEST_CASE("classes: names match names, numbers match numbers, and numbers match equally many names in order") {
  using Names = std::vector<std::string>;
  using By = MatchedClasses::By;
  const auto matches = [](const Names& classes, const Names& others, By by, const std::vector<int32_t>& labels) {
    const auto matched = match_classes(classes, others);
    REQUIRE(matched.has_value());
    CHECK(matched->by == by);
    CHECK(matched->labels == labels);
  };
  const Names animals = {"bird", "cat", "dog"}, labels = {"LABEL_0", "LABEL_1", "LABEL_2"}, numbers = {"0", "1", "2"};
  matches({"dog", "bird"}, animals, By::name, {2, 0});
  CHECK(!match_classes({"dog", "fish", "bird"}, animals));
  matches(animals, labels, By::order, {0, 1, 2});
  matches(numbers, animals, By::order, {0, 1, 2});
  CHECK(!match_classes({"0", "1"}, animals));
  matches({"0", "1"}, labels, By::number, {0, 1});
  CHECK(!match_classes(labels, {"0", "1"}));

  Names twelve, letters;
  std::vector<int32_t> counted;
  for (int i = 0; i < 12; ++i)
    twelve.push_back(text("LABEL_", i)), letters.push_back(std::string(1, static_cast<char>('a' + i))),
        counted.push_back(i);
  const Names as_text = {"0", "1", "10", "11", "2", "3", "4", "5", "6", "7", "8", "9"};
  const std::vector<int32_t> as_numbers = {0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9};
  matches(as_text, twelve, By::number, as_numbers);
  matches(as_text, letters, By::order, as_numbers);
  matches(twelve, as_text, By::number, {0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 2, 3});
  matches(letters, as_text, By::order, {0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 2, 3});
  matches({"007", "LABEL_11", "3"}, twelve, By::number, {7, 11, 3});
  matches({"10", "9", "8"}, {"8", "9", "10"}, By::name, {2, 1, 0});
  matches({"3", "1", "2"}, labels, By::order, {2, 0, 1});  // numbers 1 to 3; the other labels begin with 0
  CHECK(!match_classes({"1", "7"}, labels));
  CHECK(!match_classes({"1", "01"}, {"a", "c"}));  // two folders with one number: names
  matches({"1", "100000000000000000000000000"}, {"0100000000000000000000000000", "1"}, By::number, {1, 0});
}

TEST_CASE("classes: a name of several classes is ambiguous") {
  using Names = std::vector<std::string>;
  const Names birds = {"crane", "owl", "crane", "hen"};
  const auto check_clear = [&](const Names& classes) {
    const auto matched = match_classes(classes, birds);
    REQUIRE(matched.has_value());
    check_clear_names(*matched, {"scraps", classes}, {"the model", birds});
    return matched->labels;
  };
  CHECK(check_clear(birds) == std::vector<int32_t>{0, 1, 2, 3});
  CHECK(check_clear({"hen", "owl"}) == std::vector<int32_t>{3, 1});
  expect_error([&] { check_clear({"crane", "hen"}); }).names("scraps").value("crane").value("0, 2").offers("0 to 3");
  CHECK(check_clear({"0", "1", "2", "3"}) == std::vector<int32_t>{0, 1, 2, 3});
  CHECK(shared_names(birds) == Names{"'crane' (0, 2)"});
  CHECK(shared_names({"owl", "hen"}).empty());
}

TEST_CASE("classes: class folders that are numbers are classes in the order of the numbers") {
  const Folder folder;
  const auto classes = [&](const std::string& name, const std::vector<std::string>& names) {
    for (const std::string& one : names) {
      fs::create_directories(folder / (name + "/" + one));
      for (const char* file : {"/0.png", "/1.png"})
        fs::copy(scraps + "/shapes/train/rings" + file, folder / (name + "/" + one + file));
    }
    return read_images(folder / name, {.validation_fraction = 0.5});
  };
  const std::vector<std::string> as_text = {"0", "1", "10", "11", "2"};
  const ImageSet numbers = classes("numbers", as_text);
  CHECK(numbers.classes == std::vector<std::string>{"0", "1", "2", "10", "11"});
  CHECK(numbers.train.labels == std::vector<int32_t>{0, 1, 3, 4, 2});  // the images stay in the order of their paths
  CHECK(classes("zeros", {"002", "10", "1"}).classes == std::vector<std::string>{"1", "002", "10"});
  CHECK(classes("names", {"10", "2", "a"}).classes == std::vector<std::string>{"10", "2", "a"});
  CHECK(classes("agents", {"007", "7", "a"}).classes == std::vector<std::string>{"007", "7", "a"});
  expect_error([&] { classes("twice", {"007", "7", "8"}); }).names(folder / "twice").value("'007'").value("'7'");
  expect_error([&] { classes("labels", {"7", "LABEL_7"}); }).value("'7'").value("'LABEL_7'").offers("rename");
}
