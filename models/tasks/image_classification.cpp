// Image classification: the class, of K, that an image shows.
//   softmax   loss = mean over the images of  ln sum_k exp z_k - sum_k q_k z_k
//   sigmoid   loss = mean over the images of  sum_k ln(1 + exp z_k) - q_k z_k    Beyer et al. 2020, arXiv:2006.07159
// with logits z and targets q: 1 at the class, else 0; smoothed to (1 - s) q + s / K, and mixed with
// those of another image by mixup. Both losses are linear in q, so mixed targets mix two losses.
#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/types/usage_error.h"
#include "models/data/class_subset.h"
#include "models/data/image_batches.h"
#include "models/data/images.h"
#include "models/model.h"
#include "models/prefetcher.h"
#include "models/tasks/base/task.h"
#include "models/tasks/evaluation.h"
#include "nn/losses/base/loss.h"

namespace orrery::models {
namespace {

constexpr const char* head = "head";  // module of the classification head in image models
constexpr int64_t validation_pixels = 1 << 18, max_batch = 256, min_batch = 8;

struct BatchIndex {
  int64_t step = 0, micro_batch = 0;
  bool operator==(const BatchIndex&) const = default;
};

class ImageClassification final : public Task {
 public:
  static inline const TaskInfo info{.name = "image_classification",
                                    .description = "class of an image; a validation also reports the accuracy"};
  struct Settings {
    std::string data, validation_data, loss = "softmax";
    double validation_fraction = 0.1, label_smoothing = 0, mixup = 0;
    int64_t training_loss_images = 512, crop_padding = 0;
    bool flip = false, skip_broken = false;
    std::vector<double> pixel_mean = {0.5}, pixel_std = {0.5};

    template <class V>
    void visit(V& v) {
      v.common("data", data,
               "folder of training images; class folders of PNG or JPEG, IDX files, or CIFAR's binary files");
      v("validation_data", validation_data,
        "folder of validation images; its validation split or all; if not given, that of `data`, or a fraction");
      v("loss", loss, "loss; softmax: one class per image; sigmoid: each class independently",
        one_of({"softmax", "sigmoid"}));
      v("validation_fraction|held_out", validation_fraction,
        "fraction of each class for validation, if the data have no validation split", between(0.001, 0.9));
      v("training_loss_images", training_loss_images,
        "number of training images that a validation also evaluates, without augmentation; 0: none", between(0, 1e15));
      v("label_smoothing", label_smoothing, "fraction of each target spread evenly over all classes, in training only",
        fraction());
      v("mixup", mixup, "mix two images of a batch by a fraction from Beta(a, a); the value is a; 0: no mixup",
        zero_or(0.01, 1));
      v.common("crop_padding", crop_padding,
               "black pixels around an image before a random crop; to its original size; 0: no crop", between(0, 1024));
      v.common("flip", flip, "mirror a random half of the images, left to right");
      v("pixel_mean", pixel_mean, "mean to subtract from pixels in [0, 1]: one number, or one per channel",
        between(0, 1));
      v("pixel_std", pixel_std, "divisor of pixels after pixel_mean is subtracted: one number, or one per channel",
        between(1e-3, 1e3));
      v("skip_broken", skip_broken, "skip images that cannot be decoded, with a warning");
    }
  };

  ImageClassification(const Settings& s, AnySettings& model, const TaskOptions& options)
      : settings_(s),
        among_(named_classes(options)),
        set_(read(s, model, options)),
        fresh_head_(known_classes(options)),
        classes_(fill(model)),
        scale_(s.pixel_mean, s.pixel_std, any().channels),
        batch_(options.batch_size),
        micro_batches_(options.own_micro_batches),
        prefetcher_(
            [this](const BatchIndex& index) { return tensors_of(batches_->at(index.step, index.micro_batch), true); }) {
    if (set_.train.count() > 0)
      batches_.emplace(set_.train, scale_, Augmentation{s.crop_padding, s.flip, s.mixup}, options.batch_size,
                       options.seed);
  }

  std::vector<Tensor> batch(int64_t step, int64_t micro_batch) const override {
    const bool last = micro_batch + 1 >= micro_batches_.end;
    return prefetcher_.at({step, micro_batch},
                          last ? BatchIndex{step + 1, micro_batches_.begin} : BatchIndex{step, micro_batch + 1});
  }
  BatchCounts counts(std::span<const Tensor> batch) const override {
    return {.targets = batch[0].size(0), .units = batch[0].size(0)};
  }
  Tensor loss(nn::Module& model, std::span<const Tensor> batch, nn::ForwardPass& pass) const override {
    return loss_of(model(batch[0], pass), batch.subspan(1), pass.training);
  }
  std::optional<Validation> validate(nn::Module& model, const ValidationOptions& options) const override {
    const auto held_out = evaluate(model, set_.validation, set_.validation.count(), options);
    if (!held_out) return std::nullopt;
    Validation found{held_out->mean(), {{"accuracy", held_out->accuracy()}}};
    if (training_sample() == 0) return found;
    const auto training = evaluate(model, set_.train, training_sample(), options);
    if (!training) return std::nullopt;
    found.metrics.emplace_back("training_loss", training->mean());
    found.metrics.emplace_back("training_accuracy", training->accuracy());
    return found;
  }

  std::vector<std::string> fresh_modules() const override {
    return fresh_head_ ? std::vector<std::string>{head} : std::vector<std::string>();
  }

  std::string kind() const override { return "images"; }
  std::string unit() const override { return "images"; }
  int64_t units_per_batch() const override { return batch_; }
  int64_t units_per_epoch() const override { return set_.train.count(); }
  int64_t validation_units() const override { return set_.validation.count(); }
  int64_t choices() const override { return settings_.loss == "softmax" ? classes_ : 0; }
  std::string data() const override { return settings_.data.empty() ? settings_.validation_data : settings_.data; }
  std::string tokenizer() const override { return save_classes(set_.classes); }
  Fingerprint fingerprint() const override { return set_.fingerprint(); }
  std::map<std::string, Fingerprint> extra_inputs() const override {
    if (!set_.validation_fingerprint) return {};
    return {{"validation_data", *set_.validation_fingerprint}};
  }
  std::vector<std::string> warnings() const override {
    std::vector<std::string> all = notes_;
    all.insert(all.end(), set_.notes.begin(), set_.notes.end());
    if (!set_.skipped.empty())
      all.push_back(text(set_.skipped.size(), set_.skipped.size() == 1 ? " broken image of " : " broken images of ",
                         data(),
                         set_.skipped.size() == 1 ? " is left out: " : " are left out; the first: ", set_.skipped[0]));
    return all;
  }

  int64_t validation_examples(int64_t) const override { return set_.validation.count(); }
  std::vector<Tensor> validation_example(int64_t number, int64_t) const override {
    const ImageBatch one = images_at(set_.validation, scale_, std::array{number});
    return {one.pixels, Tensor::from(Shape{1}, one.labels)};
  }

  int64_t bytes() const override {
    return static_cast<int64_t>(set_.train.pixels.size() + set_.validation.pixels.size());
  }
  int64_t uses_per_parameter() const override { return any().height * any().width; }  // for a convolution
  int64_t validation_batch() const override {
    const int64_t fitting = std::clamp(validation_pixels / uses_per_parameter(), min_batch, max_batch);
    return std::min(fitting, std::max(set_.validation.count(), training_sample()));
  }
  std::vector<Tensor> dummy_batch(int64_t batch, int64_t) const override {
    const Images& images = any();
    ImageBatch some{Tensor::zeros(Shape{batch, images.height, images.width, images.channels}),
                    std::vector<int32_t>(static_cast<size_t>(batch))};
    if (settings_.mixup > 0) some.other_labels = some.labels;
    return tensors_of(some, true);
  }

 private:
  static std::optional<ClassSubset> named_classes(const TaskOptions& options) {
    if (options.among.empty()) return std::nullopt;
    return ClassSubset(options.among, restore_classes(options.tokenizer));
  }
  // Leaves out images of other classes than those of `among`.
  ImageSet part_of(ImageSet set, const std::string& folder) const {
    if (among_) among_->apply(set, folder);
    return set;
  }
  ImageSet read(const Settings& s, const AnySettings& model, const TaskOptions& options) const {
    using Splits = ImageOptions::Splits;
    const bool evaluating = options.purpose == Purpose::evaluate, separate = !s.validation_data.empty();
    check_usage(!s.data.empty() || evaluating, "train: there are no training images; use --data=FOLDER");
    check_usage(!s.data.empty() || separate,
                "evaluate: there are no images to evaluate on; use --validation_data=FOLDER");
    ImageOptions wanted{.size = setting_of<int64_t>(model, "image_size"),
                        .channels = setting_of<int64_t>(model, "channels"),
                        .validation_fraction = s.validation_fraction,
                        .skip_broken = s.skip_broken,
                        .splits = separate     ? Splits::training
                                  : evaluating ? Splits::evaluating
                                               : Splits::both};
    const auto note_training_data = [&](ImageSet& held_out, const std::optional<Fingerprint>& own) {
      std::vector<TrainingData> runs = options.trained_on;
      if (own) runs.insert(runs.begin(), TrainingData{*own});
      const Fingerprint fingerprint = held_out.fingerprint();
      const TrainingOverlap overlap = most_trained(runs, [&](const TrainingData& run) {
        return run.fingerprint == fingerprint ? held_out.trained_on(run.held_out) : 0;
      });
      for (std::string& each : overlap_warnings(overlap, held_out.validation.count(), "images", separate))
        held_out.notes.push_back(std::move(each));
    };
    if (s.data.empty()) {
      ImageSet held_out = squares(part_of(read_held_out(s, wanted), s.validation_data), s.validation_data);
      note_training_data(held_out, {});
      return held_out;
    }
    ImageSet set = part_of(squares(read_images(s.data, wanted), s.data), s.data);
    if (!separate) {
      note_training_data(set, {});
      return set;
    }
    wanted.size = set.train.height, wanted.channels = set.train.channels;
    ImageSet held_out = part_of(read_held_out(s, wanted), s.validation_data);
    note_training_data(held_out, evaluating ? std::optional<Fingerprint>() : set.fingerprint());
    const auto matched = match_classes(held_out.classes, set.classes);
    check(matched.has_value(), "train: ", s.validation_data, " has classes ", listed(held_out.classes), ", but ",
          s.data, " has classes ", listed(set.classes), "; use validation images of the latter classes");
    const NamedClasses of{s.validation_data, held_out.classes}, among{s.data, set.classes};
    check_clear_names(*matched, of, among);
    relabel(held_out, matched->labels);
    note_match(set.notes, *matched, of, among);
    set.notes.insert(set.notes.end(), held_out.notes.begin(), held_out.notes.end());
    set.validation = std::move(held_out.validation);
    check_sizes(set, s.validation_data);
    set.validation_fingerprint = held_out.fingerprint();
    set.skipped.insert(set.skipped.end(), held_out.skipped.begin(), held_out.skipped.end());
    return set;
  }
  static ImageSet read_held_out(const Settings& s, ImageOptions wanted) {
    wanted.splits = ImageOptions::Splits::held_out;
    return read_images(s.validation_data, wanted);
  }
  static ImageSet squares(ImageSet set, const std::string& folder) {
    const Images& images = set.train.count() > 0 ? set.train : set.validation;
    check(images.height == images.width, "train: the images of ", folder, " have ", images.height, " x ", images.width,
          " pixels, but models require squares; add --image_size=N to crop and resize them");
    return set;
  }
  const Images& any() const { return set_.train.count() > 0 ? set_.train : set_.validation; }

  // Adopts the classes of a trained model; returns true if others require a fresh head.
  bool known_classes(const TaskOptions& options) {
    if (options.tokenizer.empty()) return false;
    const std::vector<std::string> known = restore_classes(options.tokenizer);
    if (set_.classes == known) return false;
    const auto matched = match_classes(set_.classes, known);
    const bool evaluating = options.purpose == Purpose::evaluate, all = set_.classes.size() == known.size();
    if (!matched || (!evaluating && !all)) {
      check(!evaluating, "evaluate: ", data(), " has classes ", listed(set_.classes),
            ", but the model was never trained on '", first_unknown(known), "'; its classes are ", listed(known),
            "; use images of these classes, leave others out with --among=FILE, or train on these images with "
            "--init_from=RUN");
      check(options.purpose == Purpose::init_from, "train: ", data(), " has classes ", listed(set_.classes),
            ", but the resumed run has classes ", listed(known),
            "; resume it with images of the latter classes, or start a new run with --init_from=RUN");
      notes_.push_back(text("the classes of ", data(), " (", listed(set_.classes),
                            ") differ from those of the init_from run (", listed(known),
                            "), so the head is newly initialized"));
      return true;
    }
    const NamedClasses of{data(), set_.classes}, among{"the model", known};
    check_clear_names(*matched, of, among);
    relabel(set_, matched->labels);
    note_match(notes_, *matched, of, among);
    const std::vector<std::string> names = std::exchange(set_.classes, known);
    if (!are_numbers(names) && matched->by == MatchedClasses::By::order)  // names are better than numbers
      for (size_t i = 0; i < names.size(); ++i) set_.classes[static_cast<size_t>(matched->labels[i])] = names[i];
    return false;
  }
  // Returns the first class of the data that is not among the known ones.
  std::string first_unknown(const std::vector<std::string>& known) const {
    const auto is_unknown = [&](const std::string& name) {
      const auto matched = match_classes({name}, known);
      return !matched || matched->by == MatchedClasses::By::order;
    };
    const auto first = std::find_if(set_.classes.begin(), set_.classes.end(), is_unknown);
    return first == set_.classes.end() ? set_.classes[0] : *first;
  }
  // Sets the model's settings that depend on the data; returns the number of its classes.
  int64_t fill(const AnySettings& model) {
    setting_of<int64_t>(model, "image_size") = any().height;
    setting_of<int64_t>(model, "channels") = any().channels;
    int64_t& classes = setting_of<int64_t>(model, "classes");
    const auto known = static_cast<int64_t>(set_.classes.size());
    if (classes == 0 || fresh_head_) classes = known;
    check(classes >= known, "train: classes (", classes, ") must be at least the data's ", known,
          "; leave it out or raise it");
    return classes;
  }

  int64_t training_sample() const { return std::min(settings_.training_loss_images, set_.train.count()); }
  // Drops logits without a class: the setting `classes` may exceed the number of classes.
  Tensor candidates(const Tensor& logits) const {
    const auto names = static_cast<int64_t>(set_.classes.size());
    const Tensor named = names < logits.size(-1) ? slice(logits, 1, 0, names) : logits;
    return among_ ? among_->among(named) : named;
  }
  // Evaluates `count` images at even distances, because folders hold one class after another.
  std::optional<MeanLoss> evaluate(nn::Module& model, const Images& images, int64_t count,
                                   const ValidationOptions& options) const {
    const NoGrad guard;
    const Device device = nn::device_of(model);
    std::vector<int64_t> indices(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) indices[static_cast<size_t>(i)] = i * images.count() / count;
    MeanLoss loss(options.ranks);
    for (int64_t first = 0, here = 0; first < count; first += here) {
      if (options.stop && options.stop()) return std::nullopt;
      here = std::min(validation_batch(), count - first);
      if (!loss.evaluates_next()) continue;
      const ImageBatch some =
          images_at(images, scale_, std::span(indices).subspan(static_cast<size_t>(first), static_cast<size_t>(here)));
      std::vector<Tensor> tensors = tensors_of(some, false);
      for (Tensor& x : tensors) x = x.to(device);
      nn::ForwardPass pass;
      const Tensor logits = model(tensors[0], pass), found = argmax(candidates(logits)).to(Device::cpu);
      const auto correct = std::inner_product(some.labels.begin(), some.labels.end(), found.data<int32_t>(), int64_t{0},
                                              std::plus<>(), std::equal_to<>());
      loss.add(loss_of(logits, std::span(tensors).subspan(1), false).item(), here, correct);
    }
    loss.add_others();
    return loss;
  }

  // Returns for sigmoid the pixels and q, (B, K); for softmax the pixels and the labels, with mixup
  // also the other images' labels and the fraction.
  std::vector<Tensor> tensors_of(const ImageBatch& batch, bool training) const {
    const auto count = static_cast<int64_t>(batch.labels.size());
    if (settings_.loss == "sigmoid") return {batch.pixels, targets_of(batch, training ? settings_.label_smoothing : 0)};
    std::vector<Tensor> all = {batch.pixels, Tensor::from(Shape{count}, batch.labels)};
    if (!batch.other_labels.empty()) {
      all.push_back(Tensor::from(Shape{count}, batch.other_labels));
      all.push_back(Tensor::full(Shape{1}, batch.fraction));
    }
    return all;
  }
  Tensor targets_of(const ImageBatch& batch, double smoothing) const {
    const auto count = static_cast<int64_t>(batch.labels.size());
    const Tensor q = Tensor::full(Shape{count, classes_}, smoothing / static_cast<double>(classes_));
    auto* row = q.mutable_data<float>();
    for (size_t i = 0; i < batch.labels.size(); ++i, row += classes_) {
      row[batch.labels[i]] += static_cast<float>((1 - smoothing) * batch.fraction);
      if (!batch.other_labels.empty())
        row[batch.other_labels[i]] += static_cast<float>((1 - smoothing) * (1 - batch.fraction));
    }
    return q;
  }
  Tensor loss_of(const Tensor& logits, std::span<const Tensor> targets, bool training) const {
    if (settings_.loss == "sigmoid") {
      const Tensor z = logits.to(logits.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32);
      return nn::sigmoid_cross_entropy(z, targets[0].to(z.dtype()));
    }
    const double smoothing = training ? settings_.label_smoothing : 0;
    const Tensor own = nn::cross_entropy(logits, targets[0], smoothing);
    if (targets.size() == 1) return own;
    const Tensor fraction = targets[2].reshape(Shape{}).to(own.dtype());
    return own * fraction + nn::cross_entropy(logits, targets[1], smoothing) * shift(-fraction, 1);
  }

  Settings settings_;
  std::optional<ClassSubset> among_;  // of the model's classes; none: all
  std::vector<std::string> notes_;    // about classes
  ImageSet set_;
  bool fresh_head_;
  int64_t classes_;
  PixelScale scale_;
  std::optional<ImageBatches> batches_;  // none: no training data
  int64_t batch_;
  IndexRange micro_batches_;  // of this rank
  mutable Prefetcher<BatchIndex, std::vector<Tensor>> prefetcher_;  // last: its thread reads the members above
};
REGISTER_TASK(ImageClassification);

}  // namespace
}  // namespace orrery::models
