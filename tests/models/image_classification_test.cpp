// The task image_classification: runs of small models on small sets of images.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>

#include "engine/ops/ops.h"
#include "engine/system/files.h"
#include "engine/system/parallel.h"
#include "models/data/images.h"
#include "models/model.h"
#include "models/training/trainer.h"
#include "nn/losses/base/loss.h"
#include "tests/support/folder.h"
#include "tests/support/logged_rows.h"
#include "tests/support/message.h"
#include "tests/support/train.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::logged_rows;
using orrery::testing::Message;
using orrery::testing::train;
using orrery::testing::with;

namespace {

const std::string scraps = ORRERY_SOURCE_DIR "/tests/models/images";

Assignments small_vit(const std::string& out, const Assignments& more = {}) {
  return with({{"model", "vit"},
               {"layers", "1"},
               {"heads", "2"},
               {"width", "16"},
               {"patch", "7"},
               {"data", scraps + "/fashion"},
               {"batch_size", "12"},
               {"steps", "12"},
               {"evaluate_every", "6"},
               {"out", out},
               {"checkpoint_every", "4"},
               {"keep_checkpoints", "0"},
               {"warmup_steps", "3"},
               {"learning_rate", "3e-3"}},
              more);
}
Assignments small_resnet(const std::string& out, const Assignments& more = {}) {
  return with({{"model", "resnet"},
               {"width", "4"},
               {"data", scraps + "/shapes"},
               {"batch_size", "4"},
               {"steps", "12"},
               {"evaluate_every", "6"},
               {"out", out},
               {"checkpoint_every", "4"},
               {"keep_checkpoints", "0"},
               {"optimizer", "sgd(momentum=0.9, nesterov=yes)"},
               {"learning_rate", "0.05"}},
              more);
}
const Assignments all_augmentation = {
    {"crop_padding", "2"}, {"flip", "yes"}, {"mixup", "0.4"}, {"label_smoothing", "0.1"}};

}  // namespace

TEST_CASE("images: a model learns to classify them, and a validation reports the accuracy") {
  const Folder folder;
  const TrainingResult result =
      train(small_vit(folder / "a", {{"steps", "150"}, {"evaluate_every", "0"}, {"learning_rate", "1e-2"}}));
  REQUIRE(result.metrics.size() == 3);  // also training loss and training accuracy
  CHECK(result.metrics[0].first == "accuracy");
  CHECK(result.metrics[0].second >= 0.25);  // ten classes, 60 training images
  CHECK(result.validation_loss < 1.9);      // ln 10 is 2.3
  const auto row = logged_rows(folder / "a").back();
  CHECK(row.at("accuracy") == doctest::Approx(result.metrics[0].second));
  CHECK(row.at("validation_loss") == doctest::Approx(result.validation_loss));
}

TEST_CASE("images: a validation evaluates training images like validation images, all or an even sample") {
  const Folder folder;
  std::filesystem::create_directory(folder / "same");
  for (const char* part : {"train", "t10k"})
    for (const std::string kind : {"-images-idx3-ubyte.gz", "-labels-idx1-ubyte.gz"})
      write_file_atomically(folder / ("same/" + (part + kind)), read_file(scraps + "/fashion/train" + kind));
  const auto evaluated = [&](const std::string& name, const std::string& count) {
    const Assignments more = {{"data", folder / "same"}, {"training_loss_images", count}, {"mixup", "0.4"}};
    return train(with(small_vit(folder / name), more));
  };
  const TrainingResult all = evaluated("all", "1000"), third = evaluated("third", "20"), none = evaluated("none", "0");
  REQUIRE(all.metrics.size() == 3);
  CHECK(all.metrics[1] == std::pair<std::string, double>("training_loss", all.validation_loss));
  CHECK(all.metrics[2] == std::pair<std::string, double>("training_accuracy", all.metrics[0].second));
  REQUIRE(third.metrics.size() == 3);
  CHECK(third.metrics[1].second != all.metrics[1].second);
  CHECK(third.metrics[1].second == doctest::Approx(all.metrics[1].second).epsilon(0.3));
  CHECK(none.metrics.size() == 1);
}

TEST_CASE("images: a run with all augmentation is bit-identical for one and two threads and after an interruption") {
  const Folder folder;
  const int before = thread_count();
  for (const auto& settings : {small_vit, small_resnet})
    for (const char* loss : {"softmax", "sigmoid"}) {
      const Assignments all = with(all_augmentation, {{"loss", loss}, {"gradient_accumulation_steps", "2"}});
      const std::string name = std::string(loss) + (settings == small_vit ? "_vit_" : "_resnet_");
      for (const char* threads : {"1", "2"})
        train(with(settings(folder / (name + threads), all), {{"threads", threads}}));
      set_thread_count(before);
      CHECK_THROWS_AS(
          [&] {
            Trainer trainer(make_settings(settings(folder / (name + "parts"), all)));
            TrainingEvents events;
            events.step = [](const StepReport& r) {
              if (r.step == 6) throw std::runtime_error("killed");
            };
            trainer.run(events);
          }(),
          std::runtime_error);
      train(with(settings(folder / (name + "parts"), all), {{"resume", "yes"}}));
      for (const std::string file : {"weights", "optimizer"}) {
        const std::string end = "/step_000012/" + file + ".safetensors",
                          expected = read_file(folder / (name + "1" + end));
        CHECK(read_file(folder / (name + "2" + end)) == expected);
        CHECK(read_file(folder / (name + "parts" + end)) == expected);
      }
    }
}

TEST_CASE("images: bf16 learns nearly as f32 does") {
  const Folder folder;
  for (const auto& settings : {small_vit, small_resnet}) {
    const Assignments more = {{"steps", "40"}, {"evaluate_every", "0"}, {"checkpoint_every", "0"}};
    const std::string name = settings == small_vit ? "vit_" : "resnet_";
    const double wide = train(settings(folder / (name + "f32"), more)).validation_loss,
                 narrow = train(with(settings(folder / (name + "bf16"), more), {{"dtype", "bf16"}})).validation_loss;
    INFO("f32 ", wide, ", bf16 ", narrow);
    CHECK(std::abs(wide - narrow) < 0.02 + 0.02 * wide);
  }
}

TEST_CASE("images: the loss of a mixed batch is the loss for its mixed targets") {
  const Folder folder;
  for (const char* loss : {"softmax", "sigmoid"}) {
    const TrainSettings run = make_settings(small_vit(folder / loss, with(all_augmentation, {{"loss", loss}})));
    AnySettings model_settings = run.model_settings;
    const auto task = tasks().at(run.task).make(run.task_settings, model_settings, {.batch_size = 12, .seed = 5});
    const auto model = named_model("vit").model_class.make(model_settings);
    nn::initialize(*model, 2);
    const std::vector<Tensor> batch = task->batch(3, 0);
    nn::ForwardPass pass;
    pass.training = true;
    const double found = task->loss(*model, batch, pass).item();
    Tensor q = batch[1];
    if (std::string(loss) == "softmax") {
      const double fraction = batch[3].item();
      q = (one_hot(batch[1], 10) * fraction + one_hot(batch[2], 10) * (1 - fraction)) * 0.9 + 0.01;
    }
    const Tensor z = (*model)(batch[0], pass);
    const double expected = std::string(loss) == "softmax" ? mean(log(sum(exp(z), {1})) - sum(q * z, {1})).item()
                                                           : mean(sum(log(exp(z) + 1.0) - q * z, {1})).item();
    CHECK(found == doctest::Approx(expected).epsilon(1e-5));
    for (double total : sum(q, {1}).to_vector()) CHECK(total == doctest::Approx(1));
  }
}

TEST_CASE("images: validation does not augment images") {
  const Folder folder;
  const auto loss_of = [&](const std::string& name, const Assignments& more) {
    const TrainSettings run = make_settings(small_vit(folder / name, more));
    AnySettings model_settings = run.model_settings;
    const auto task = tasks().at(run.task).make(run.task_settings, model_settings, {.batch_size = 12, .seed = 5});
    const auto model = named_model("vit").model_class.make(model_settings);
    nn::initialize(*model, 2);
    return task->validate(*model, {})->loss;
  };
  CHECK(loss_of("a", {}) == loss_of("b", all_augmentation));
  CHECK(loss_of("a", {}) != loss_of("c", {{"pixel_mean", "0.2"}}));
}

TEST_CASE("images: settings that do not fit are errors before a run begins") {
  const Folder folder;
  constexpr auto recursive = std::filesystem::copy_options::recursive;
  const auto refused = [&](const Assignments& more) {
    return expect_error([&] { train(small_vit(folder / "refused", more)); });
  };
  refused({{"data", ""}}).names("train").names("images").offers("--data=FOLDER");
  refused({{"data", folder / "nowhere"}}).names("images").value(folder / "nowhere");
  refused({{"classes", "9"}}).names("classes").value(9).offers(10);
  refused({{"channels", "3"}}).names("fashion").value(1).value(3).offers("--channels=1");
  refused({{"patch", "5"}}).names("patch").value(5).names("image_size").value(28);
  refused({{"loss", "hinge"}}).names("loss").value("hinge").offers("softmax");
  refused({{"pixel_mean", "0.5, 0.5"}}).names("pixel_mean").value(2).offers("one").offers(1);
  const std::string others = folder / "others", shapes = scraps + "/shapes";
  std::filesystem::create_directory(others);
  for (const char* name : {"/a", "/b"}) std::filesystem::copy(shapes + "/val/rings", others + name, recursive);
  refused({{"data", shapes}, {"validation_data", others}}).value(others).value("a, b").value(shapes).offers("stripes");
  expect_error([&] {
    train({{"model", "gpt"}, {"task", "image_classification"}, {"data", scraps}, {"out", folder / "gpt"}});
  })
      .names("model")
      .value("image_size")
      .offers("--task")
      .offers("orrery list model");
  CHECK(!std::filesystem::exists(folder / "refused/step_000012"));
  expect_error([&] {
    train({{"model", "vit"}, {"task", "language_modeling"}, {"out", folder / "text"}, {"data", scraps + "/make.py"}});
  })
      .names("model")
      .value("context")
      .offers("--task");
}

TEST_CASE("images: a run resumes with its own data and classes only") {
  const Folder folder;
  std::filesystem::copy(scraps + "/shapes", folder / "shapes", std::filesystem::copy_options::recursive);
  const Assignments ours = {{"data", folder / "shapes"}, {"steps", "4"}};
  train(small_resnet(folder / "run", ours));
  const Assignments more = with(ours, {{"steps", "6"}, {"resume", "yes"}});
  const std::string shapes = folder / "shapes";
  std::filesystem::rename(shapes + "/val/rings/1.png", shapes + "/val/rings/9.png");
  const auto resume = [&] { train(small_resnet(folder / "run", more)); };
  expect_error(resume).value(shapes).names("images").names(folder / "run").offers("--allow_new_text=yes");
  for (const char* part : {"/train", "/val"}) std::filesystem::rename(shapes + part + "/rings", shapes + part + "/a");
  expect_error(resume).names(shapes).value("a, stripes").offers("rings, stripes");
}

TEST_CASE("images: skipped broken images are reported") {
  const Folder folder;
  std::filesystem::copy(scraps + "/shapes", folder / "shapes", std::filesystem::copy_options::recursive);
  write_file_atomically(folder / "shapes/train/rings/0.png", "no picture");
  Trainer trainer(make_settings(
      small_resnet(folder / "run", {{"data", folder / "shapes"}, {"skip_broken", "yes"}, {"steps", "1"}})));
  std::vector<std::string> messages;
  TrainingEvents events;
  events.warning = [&](const std::string& sentence) { messages.push_back(sentence); };
  trainer.run(events);
  REQUIRE(messages.size() == 1);
  Message(messages[0]).value(1).names("image").names(folder / "shapes/train/rings/0.png").names("decoded");
}

TEST_CASE("image classification: the training images of a validation are an even sample, also with validation_data") {
  const Folder folder;
  for (const char* image : {"rings/0.png", "rings/1.png", "rings/3.jpg", "stripes/0.png", "stripes/2.png"}) {
    const std::filesystem::path copy = folder / (std::string("even/") + image);
    std::filesystem::create_directories(copy.parent_path());
    std::filesystem::copy_file(scraps + "/shapes/train/" + image, copy);
  }
  const TrainingResult evaluated =
      train(small_resnet(folder / "run", {{"validation_data", folder / "even"}, {"training_loss_images", "5"}}));
  REQUIRE(evaluated.metrics.size() == 3);
  CHECK(evaluated.metrics[1] == std::pair<std::string, double>("training_loss", evaluated.validation_loss));
  CHECK(evaluated.metrics[2].second == evaluated.metrics[0].second);
}

TEST_CASE("image classification: an old run keeps its class order, in which numbers were sorted as text") {
  const Folder folder;
  const std::vector<std::string> as_text = {"0", "1", "10", "2"}, as_numbers = {"0", "1", "2", "10"};
  std::filesystem::create_directory(folder / "numbers");
  for (const std::string& name : as_text)
    std::filesystem::copy(scraps + "/shapes/train/rings", folder / ("numbers/" + name),
                          std::filesystem::copy_options::recursive);
  const auto begun = [&](const std::string& tokenizer, Purpose purpose) {
    const TrainSettings run =
        make_settings(small_resnet(folder / "run", {{"data", folder / "numbers"}, {"validation_fraction", "0.25"}}));
    AnySettings model_settings = run.model_settings;
    return tasks().at(run.task).make(run.task_settings, model_settings,
                                     {.batch_size = 16, .seed = 5, .tokenizer = tokenizer, .purpose = purpose});
  };
  const auto now = begun("", Purpose::train), before = begun(save_classes(as_text), Purpose::resume);
  CHECK(restore_classes(now->tokenizer()) == as_numbers);
  CHECK(restore_classes(before->tokenizer()) == as_text);
  const std::vector<Tensor> ours = now->batch(2, 0), theirs = before->batch(2, 0);
  CHECK(ours[0].to_vector() == theirs[0].to_vector());  // same images: draws use the order of paths
  for (size_t i = 0; i < 16; ++i)
    CHECK(as_numbers[static_cast<size_t>(ours[1].to_vector()[i])] ==
          as_text[static_cast<size_t>(theirs[1].to_vector()[i])]);
}
