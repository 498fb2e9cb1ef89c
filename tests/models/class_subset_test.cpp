// The evaluation of a model of images on a named part of its classes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "engine/math/random.h"
#include "engine/system/files.h"
#include "models/data/class_subset.h"
#include "models/model.h"
#include "models/tasks/base/task.h"
#include "models/training/trainer.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"
#include "tests/support/train.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::Message;

namespace {

const std::vector<std::string> animals_and_vehicles = {"airplane", "automobile", "bird",  "cat",  "deer",
                                                       "dog",      "frog",       "horse", "ship", "truck"};
const std::string vehicles = "airplane\nautomobile\nship\ntruck\n", animals = "bird\ncat\ndeer\n\ndog\r\nfrog\nhorse\n";

// Returns records as CIFAR-10's: `each` images of each class, gray, as bright as their class, noisy.
std::string records(int64_t each, uint64_t seed) {
  std::string all;
  for (int64_t i = 0; i < 10 * each; ++i) {
    const int64_t label = i % 10;
    all += static_cast<char>(label);
    for (uint64_t pixel = 0; pixel < 3072; ++pixel) {
      const double noise = 40 * normal(RandomKey{seed, static_cast<uint64_t>(i)}, pixel);
      const double value = std::clamp(20.0 + 22 * static_cast<double>(label) + noise, 0.0, 255.0);
      all += static_cast<char>(static_cast<uint8_t>(value));
    }
  }
  return all;
}
void make_cifar(const std::string& folder) {
  std::filesystem::create_directory(folder);
  write_file_atomically(folder + "/data_batch_1.bin", records(6, 1));
  write_file_atomically(folder + "/test_batch.bin", records(4, 2));
  std::string names;
  for (const std::string& name : animals_and_vehicles) names += name + "\n";
  write_file_atomically(folder + "/batches.meta.txt", names);
}

std::string written(const Folder& folder, const std::string& name, const std::string& content) {
  write_file_atomically(folder / name, content);
  return folder / name;
}

}  // namespace

TEST_CASE("among: two halves of CIFAR-10's classes have all images and the whole's loss, and no lower accuracy") {
  const Folder folder;
  make_cifar(folder / "cifar");
  const TrainSettings settings = make_settings({{"model", "vit"}, {"layers", "1"}, {"heads", "2"}, {"width", "16"},
                                                {"patch", "8"}, {"data", folder / "cifar"}, {"batch_size", "20"},
                                                {"steps", "100"}, {"learning_rate", "1e-2"}, {"evaluate_every", "0"},
                                                {"out", folder / "run"}, {"checkpoint_every", "0"}});
  Trainer trainer(settings);
  trainer.run();
  struct Evaluated {
    int64_t images;
    double loss, accuracy;
    std::vector<std::string> notes;
  };
  const auto evaluate = [&](const std::string& among) {
    AnySettings task_settings = settings.task_settings, model_settings = settings.model_settings;
    const auto task = tasks().at("image_classification")
                          .make(task_settings, model_settings,
                                {.batch_size = 20,
                                 .tokenizer = save_classes(animals_and_vehicles),
                                 .purpose = Purpose::evaluate,
                                 .among = among});
    const auto found = task->validate(trainer.model(), {});
    return Evaluated{task->validation_units(), found->loss, found->metrics[0].second, task->warnings()};
  };
  const Evaluated all = evaluate(""), first = evaluate(written(folder, "vehicles.txt", vehicles)),
                  second = evaluate(written(folder, "animals.txt", animals)),
                  numbers = evaluate(written(folder, "numbers.txt", "9\n0\n8\n1\n"));
  CHECK(all.images == 40);
  CHECK(first.images == 16);
  CHECK(second.images == 24);
  CHECK((16 * first.loss + 24 * second.loss) / 40 == doctest::Approx(all.loss).epsilon(1e-5));
  CHECK(16 * first.accuracy + 24 * second.accuracy >= 40 * all.accuracy - 1e-9);  // fewer classes compete
  CHECK(first.accuracy > 0.25);
  CHECK(numbers.images == first.images);
  CHECK(numbers.accuracy == first.accuracy);
  REQUIRE(first.notes.size() == 1);
  Message(first.notes[0])
      .value("4 of the model's 10 classes")
      .names(folder / "vehicles.txt")
      .value("24 of the 40 images");
  CHECK(all.notes.empty());
}

TEST_CASE("among: only the named classes compete, and infinities of others are ignored") {
  const Folder folder;
  const ClassSubset subset(written(folder, "some.txt", "c\na\n"), {"a", "b", "c"});
  CHECK(subset.count() == 2);
  CHECK(!subset.contains(1));
  CHECK(ClassSubset(written(folder, "marked.txt", "\xEF\xBB\xBF" "c\n"), {"a", "b", "c"}).contains(2));
  const Tensor logits = Tensor::from(Shape{2, 3}, {1, 9, 2, -5, 0, -7});
  CHECK(subset.among(logits).to_vector() == std::vector<double>{1, -INFINITY, 2, -5, -INFINITY, -7});
}

TEST_CASE("among: images of other classes are dropped, also of classes that the model was never trained on") {
  const Folder folder;
  const ClassSubset subset(written(folder, "some.txt", "b\n"), {"a", "b", "c"});
  ImageSet set;
  set.classes = {"x", "b", "a"};
  for (uint8_t i = 0; i < 6; ++i) {
    set.validation.labels.push_back(i % 3);
    set.validation.pixels.insert(set.validation.pixels.end(), {i, static_cast<uint8_t>(100 + i)});
  }
  set.validation.height = 1, set.validation.width = 2, set.validation.channels = 1;
  subset.apply(set, "data");
  CHECK(set.classes == std::vector<std::string>{"a", "b", "c"});
  CHECK(set.validation.labels == std::vector<int32_t>{1, 1});
  CHECK(set.validation.pixels == std::vector<uint8_t>{1, 101, 4, 104});
  ImageSet none = set;
  none.classes = {"x", "y", "z"};
  expect_error([&] { subset.apply(none, "data"); })
      .names("evaluate")
      .value(2)
      .names("data")
      .names(folder / "some.txt")
      .value("x, y, z");
}

TEST_CASE("among: a name that several classes have means all of them") {
  const Folder folder;
  const ClassSubset subset(written(folder, "some.txt", "crane\n"), {"crane", "heron", "crane"});
  CHECK(subset.count() == 2);
  CHECK(!subset.contains(1));
}

TEST_CASE("among: a class that the model was never trained on is an error with its line") {
  const Folder folder;
  const auto refused = [&](const std::string& content, const std::vector<std::string>& known) {
    return expect_error([&] { ClassSubset(written(folder, "some.txt", content), known); });
  };
  const std::string path = folder / "some.txt";
  refused("a\n\nd\n", {"a", "b", "c"}).names(path + ":3").value("d").offers("a, b, c");
  refused("0\n3\n", {"a", "b", "c"}).names(path + ":2").value(3).offers(2);
  refused("7\n8\n", {"LABEL_6", "LABEL_7"}).names(path + ":2").value(8).offers("LABEL_6, LABEL_7");
  refused("\n", {"a", "b"}).names(path).offers("one class");
  expect_error([&] { ClassSubset(folder / "none", {"a"}); }).names(folder / "none");
}
