// Translation: each next token of the target, given the source and the target so far.
//   loss of a step = -1 / N sum ln p(target_t | target before t, source),   N: tokens of all targets of the step
#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>

#include "engine/autograd/autograd.h"
#include "engine/types/usage_error.h"
#include "models/architectures/translation_search.h"
#include "models/data/bleu.h"
#include "models/data/sentence_pairs.h"
#include "models/model.h"
#include "models/tasks/base/task.h"
#include "models/tasks/evaluation.h"
#include "models/translation_model.h"
#include "nn/losses/base/loss.h"

namespace orrery::models {
namespace {

class Translation final : public Task {
 public:
  static inline const TaskInfo info{.name = "translation",
                                    .description = "translation of sentences or documents into another language"};
  struct Settings {
    std::string data, translations, validation_data, validation_translations, source_field = "source",
                                                                              target_field = "target",
                                                                              tokenizer = "sentence_piece";
    int64_t source_column = 1, target_column = 2, document_column = 0, document_lines = 0, training_loss_pairs = 256,
            batch_tokens = 3000, max_length = 0;
    double validation_fraction = 0.05, label_smoothing = 0.1;
    bool exchanged_sources = false;

    template <class V>
    void visit(V& v) {
      v.common("data", data, "training sentences, one per line (UTF-8); without `translations`: JSONL or columns");
      v.common("translations", translations, "translations of `data`, line by line");
      v("validation_data", validation_data,
        "validation sentences, in the form of `data`; if not given, validation_fraction of `data`");
      v("validation_translations", validation_translations, "translations of `validation_data`, line by line");
      v("source_column", source_column, "column of the sentence in a file with tab-separated columns, from 1",
        between(1, 1000));
      v("target_column", target_column, "column of the translation in such a file, from 1", between(1, 1000));
      v("document_column", document_column,
        "consecutive lines with equal text in this column form a document; 0: each line is a pair", between(0, 1000));
      v("document_lines", document_lines,
        "maximum lines of a document per pair; further lines form the next pairs; 0: no limit", between(0, 1000000));
      v("source_field", source_field, "field of JSONL with the sentence; empty: a .jsonl file has columns");
      v("target_field", target_field, "field of JSONL with the translation");
      v.common("tokenizer", tokenizer,
               "tokenizer of both languages, by name or path; sentence_piece(vocabulary=8000), character or byte",
               with_aliases({"token_ids|numbers"}));
      v("validation_fraction|held_out", validation_fraction,
        "fraction of the pairs, at their end, for validation without validation_data", between(0.001, 0.9));
      v("training_loss_pairs", training_loss_pairs,
        "number of training pairs whose loss a validation also reports, without dropout; 0: none", between(0, 1e15));
      v.common("batch_tokens", batch_tokens,
               "maximum tokens per update; with gradient_accumulation_steps above 1, per micro-batch; sources and "
               "targets together; `batch_size` is not used",
               between(1, 16777216));
      v("max_length|longest", max_length, "maximum tokens on a side; longer pairs are left out; 0: no limit",
        between(0, 16777216));
      v("label_smoothing", label_smoothing, "fraction of each target spread evenly over all tokens, in training only",
        fraction());
      v("exchanged_sources", exchanged_sources,
        "validate with sources of other pairs: shows how much the model depends on the source");
    }
  };

  Translation(const Settings& s, AnySettings& model, const TaskOptions& options)
      : settings_(s),
        micro_batches_(options.micro_batches),
        evaluating_(options.purpose == Purpose::evaluate),
        bleu_(evaluating_ && options.bleu),
        progress_(options.progress) {
    std::vector<TextPair> training = read_training();
    const bool own = !s.validation_data.empty();
    TrainingOverlap fraction = own ? TrainingOverlap() : pairs_trained_on(training, options.trained_on);
    std::vector<TextPair> held_out = read_held_out(training);
    for (const auto* const pairs : {&training, &held_out})
      empty_ += std::count_if(pairs->begin(), pairs->end(),
                              [](const TextPair& pair) { return pair.first.empty() || pair.second.empty(); });
    fingerprint_ = fingerprint_of(training.empty() ? held_out : training);
    if (!training.empty()) extra_inputs_["validation_data"] = fingerprint_of(held_out);
    std::vector<TrainingData> trained_on = options.trained_on;
    if (!evaluating_) trained_on.insert(trained_on.begin(), TrainingData{fingerprint_});
    if (own)
      fraction = pairs_trained_on(held_out, trained_on);
    else
      fraction.trained -= static_cast<int64_t>(training.size());
    notes_ = overlap_warnings(fraction, static_cast<int64_t>(held_out.size()), kind(), own);
    tokenizer_ = options.tokenizer.empty() ? make_tokenizer(s.tokenizer, [&] { return text_of(training); })
                                           : restore_tokenizer(options.tokenizer);
    if (!is_made_of_text(s.tokenizer)) extra_inputs_["tokenizer"] = fingerprint_of(*tokenizer_);
    marks_ = sentence_marks(*tokenizer_);
    const int64_t context = setting_of<int64_t>(model, "context");
    if (!training.empty()) training_ = encoded(training, context, s.data);
    held_out_ = encoded(held_out, context, s.validation_data.empty() ? s.data : s.validation_data);
    if (bleu_)
      for (TextPair& pair : held_out) references_.push_back(std::move(pair.second));
    if (s.exchanged_sources)  // at the largest distance: adjacent pairs may be related
      for (size_t i = 0, half = held_out_.size() / 2; i < half; ++i)
        std::swap(held_out_[i].source, held_out_[i + half].source);
    int64_t& vocabulary = setting_of<int64_t>(model, "vocabulary");
    if (vocabulary == 0) vocabulary = marks_.vocabulary;
    check(vocabulary >= marks_.vocabulary, "train: vocabulary (", vocabulary, ") must be at least the tokenizer's ",
          marks_.vocabulary, " tokens; leave it out or raise it");
    vocabulary_ = vocabulary;
    batches_ = batches_of(training_, options.seed);
    validation_ = batches_of(held_out_, 0);
    training_sample_ = evenly(training_, s.training_loss_pairs);
    sample_batches_ = batches_of(training_sample_, 0);
  }

  std::vector<Tensor> batch(int64_t step, int64_t micro_batch) const override {
    return tensors_of(batches_->at(step * micro_batches_ + micro_batch));
  }
  BatchCounts counts(std::span<const Tensor> batch) const override {
    const auto tokens = [](const Tensor& lengths) {
      return std::accumulate(lengths.data<int32_t>(), lengths.data<int32_t>() + lengths.numel(), int64_t{0});
    };
    return {.targets = count_targets(batch[3]), .units = tokens(batch[1]) + tokens(batch[4])};
  }
  bool has_dynamic_shapes() const override { return true; }
  Tensor loss(nn::Module& model, std::span<const Tensor> batch, nn::ForwardPass& pass) const override {
    return mean_loss(model, batch, pass, pass.training ? settings_.label_smoothing : 0);
  }
  std::optional<Validation> validate(nn::Module& model, const ValidationOptions& options) const override {
    const auto loss = evaluate(model, *validation_, options);
    if (!loss) return std::nullopt;
    Validation found{.loss = loss->mean()};
    if (bleu_) found.metrics.emplace_back("BLEU", bleu_of(model));
    if (!sample_batches_) return found;
    const auto training = evaluate(model, *sample_batches_, options);
    if (!training) return std::nullopt;
    found.metrics.emplace_back("training_loss", training->mean());
    return found;
  }

  std::vector<std::string> warnings() const override {
    std::vector<std::string> all = notes_;
    if (empty_ > 0)
      all.push_back(text(empty_, empty_ == 1 ? " pair of " : " pairs of ", data(), empty_ == 1 ? " has" : " have",
                         " an empty side; such pairs are used as they are"));
    return all;
  }

  std::string kind() const override { return "pairs"; }
  std::string unit() const override { return "tokens"; }
  int64_t units_per_batch() const override {
    return batches_ ? batches_->all_tokens() / batches_->batches_per_epoch() : 0;
  }
  int64_t units_per_epoch() const override { return batches_ ? batches_->all_tokens() : 0; }
  int64_t validation_units() const override { return validation_->all_tokens(); }
  int64_t choices() const override { return vocabulary_; }
  std::string data() const override { return settings_.data.empty() ? settings_.validation_data : settings_.data; }
  std::string tokenizer() const override { return tokenizer_->save(); }
  Fingerprint fingerprint() const override { return fingerprint_; }
  std::map<std::string, Fingerprint> extra_inputs() const override { return extra_inputs_; }

  int64_t validation_examples(int64_t max_tokens) const override {
    return std::count_if(held_out_.begin(), held_out_.end(), [=](const Pair& pair) { return fits(pair, max_tokens); });
  }
  std::vector<Tensor> validation_example(int64_t number, int64_t max_tokens) const override {
    const auto found = std::find_if(held_out_.begin(), held_out_.end(),
                                    [&](const Pair& pair) { return fits(pair, max_tokens) && number-- == 0; });
    return {Tensor::from(Shape{1, static_cast<int64_t>(found->source.size())}, found->source),
            Tensor::from(Shape{static_cast<int64_t>(found->target.size())}, found->target)};
  }

  int64_t bytes() const override { return (units_per_epoch() + validation_units()) * 4; }
  int64_t sequence_length() const override {
    return std::max(batches_ ? batches_->longest() : 0, validation_->longest());
  }
  int64_t training_batch(int64_t) const override { return batches_ ? rows_of(*batches_) : 0; }
  double mean_batch_size(int64_t) const override {  // a pair has two sentences
    return static_cast<double>(units_per_batch()) / static_cast<double>(2 * sequence_length());
  }
  int64_t validation_batch() const override {
    return std::max(rows_of(*validation_), sample_batches_ ? rows_of(*sample_batches_) : 0);
  }
  // Pads one row by a token, if it has room: metrics and signal propagation then skip padding.
  std::vector<Tensor> dummy_batch(int64_t batch, int64_t length) const override {
    const Tensor tokens = Tensor::zeros(Shape{batch, length}, Dtype::i32);
    std::vector<int32_t> row_lengths(static_cast<size_t>(batch), static_cast<int32_t>(length));
    if (batch > 0 && length > 1) --row_lengths[0];
    const Tensor lengths = Tensor::from(Shape{batch}, row_lengths);
    return {tokens, lengths, tokens, tokens, lengths};
  }

 private:
  // Returns true if both sides have tokens, at most max_tokens with their end.
  static bool fits(const Pair& pair, int64_t max_tokens) {
    const auto [shorter, longer] = std::minmax({pair.source.size(), pair.target.size()});
    return shorter > 1 && static_cast<int64_t>(longer) <= max_tokens;
  }
  PairFiles files(const std::string& source, const std::string& target) const {
    return {.source = source,
            .target = target,
            .source_column = settings_.source_column,
            .target_column = settings_.target_column,
            .document_column = settings_.document_column,
            .document_lines = settings_.document_lines,
            .source_field = settings_.source_field,
            .target_field = settings_.target_field};
  }
  // Counts the pairs, from the first, that a run on them, or on these and further ones, trained on.
  static TrainingOverlap pairs_trained_on(std::span<const TextPair> all, std::span<const TrainingData> runs) {
    return most_trained(runs, [&](const TrainingData& run) {
      for (const size_t count : {all.size(), all.size() - held_out_of(all.size(), run.held_out)})
        if (fingerprint_of(all.first(count)) == run.fingerprint) return static_cast<int64_t>(count);
      return int64_t{0};
    });
  }
  static size_t held_out_of(size_t pairs, double fraction) {
    return static_cast<size_t>(static_cast<double>(pairs) * fraction);
  }
  std::vector<TextPair> read_training() const {
    const Settings& s = settings_;
    check_usage(
        !s.data.empty() || evaluating_,
        "train: there are no training sentences; use --data=FILE and --translations=FILE, or --data=FILE.tsv with "
        "columns");
    check_usage(!s.data.empty() || !s.validation_data.empty(),
                "evaluate: there are no sentences to evaluate on; use --validation_data=FILE and "
                "--validation_translations=FILE");
    check(s.validation_translations.empty() || !s.validation_data.empty(), evaluating_ ? "evaluate" : "train",
          ": --validation_translations=", s.validation_translations,
          " has no sentences to translate; add them with --validation_data=FILE");
    return s.data.empty() ? std::vector<TextPair>() : read_pairs(files(s.data, s.translations));
  }
  // Moves the end of `training` to the result if there is no validation_data.
  std::vector<TextPair> read_held_out(std::vector<TextPair>& training) const {
    const Settings& s = settings_;
    if (!s.validation_data.empty()) return read_pairs(files(s.validation_data, s.validation_translations));
    const auto count = static_cast<std::ptrdiff_t>(held_out_of(training.size(), s.validation_fraction));
    check(count >= 1, "train: validation_fraction (", s.validation_fraction, ") of ", training.size(),
          " pairs is less than one pair; use more pairs, a larger fraction or --validation_data=FILE");
    std::vector<TextPair> held_out(std::make_move_iterator(training.end() - count),
                                   std::make_move_iterator(training.end()));
    training.erase(training.end() - count, training.end());
    return held_out;
  }
  // Returns the pairs as tokens; removes the pairs that `max_length` excludes from both lists.
  std::vector<Pair> encoded(std::vector<TextPair>& texts, int64_t context, const std::string& file) const {
    const auto tokens = [](const Pair& p) { return static_cast<int64_t>(std::max(p.source.size(), p.target.size())); };
    std::vector<Pair> pairs = encode(texts, *tokenizer_, marks_);
    size_t kept = 0;
    int64_t longer = 0, longest = 0;
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (settings_.max_length && tokens(pairs[i]) > settings_.max_length) continue;
      longer += tokens(pairs[i]) > context, longest = std::max(longest, tokens(pairs[i]));
      if (i != kept) pairs[kept] = std::move(pairs[i]), texts[kept] = std::move(texts[i]);
      ++kept;
    }
    pairs.resize(kept), texts.resize(kept);
    const char* const command = evaluating_ ? "evaluate" : "train";
    check(!pairs.empty(), command, ": no pair of ", file, " has at most ", settings_.max_length,
          " tokens on both sides; raise --max_length");
    check(longer == 0, command, ": ", longer, " of ", pairs.size(), " pairs of ", file,
          " have more tokens on a side than context (", context, "); the longest has ", longest,
          evaluating_ ? "; " : "; raise --context, or ", "leave them out with --max_length=", context);
    return pairs;
  }
  // Returns null if there are no pairs.
  std::unique_ptr<PairBatches> batches_of(const std::vector<Pair>& pairs, uint64_t seed) const {
    if (pairs.empty()) return nullptr;
    return std::make_unique<PairBatches>(pairs, marks_, settings_.batch_tokens, seed);
  }
  // Returns the BLEU of `orrery translate` with default settings on all held-out pairs.
  double bleu_of(nn::Module& model) const {
    std::vector<std::vector<int32_t>> sources;
    for (const Pair& pair : held_out_) sources.push_back(pair.source);
    const std::vector<std::string> translations = translate_to_text(
        as_translation_model(model), sources, *tokenizer_, {.beam = default_beam, .progress = [&](double fraction) {
                                                              if (progress_) progress_("translated", fraction);
                                                            }});
    return bleu(translations, references_).score;
  }
  static TranslationModel& as_translation_model(nn::Module& model) {
    return model_as<TranslationModel>(
        model, "translation",
        "an encoder-decoder, from one sequence to another; use one, such as --model=translation-small");
  }
  static std::vector<Tensor> tensors_of(const PairBatch& b) {
    return {b.sources, b.source_lengths, b.inputs, b.targets, b.target_lengths};
  }
  static Tensor mean_loss(nn::Module& model, std::span<const Tensor> batch, nn::ForwardPass& pass, double smoothing) {
    TranslationModel& translates = as_translation_model(model);
    translates.encode(batch[0], batch[1], pass);
    pass.lengths = batch[4];
    return nn::cross_entropy(translates(batch[2], pass), batch[3], smoothing);
  }
  // Returns the mean over the targets of all pairs; nothing if it was stopped.
  std::optional<MeanLoss> evaluate(nn::Module& model, const PairBatches& batches,
                                   const ValidationOptions& options) const {
    const NoGrad guard;
    const Device device = nn::device_of(model);
    MeanLoss loss(options.ranks);
    for (int64_t i = 0; i < batches.batches_per_epoch(); ++i) {
      if (options.stop && options.stop()) return std::nullopt;
      if (!loss.evaluates_next()) continue;
      std::vector<Tensor> batch = tensors_of(batches.at(i));
      const int64_t targets = count_targets(batch[3]);
      for (Tensor& x : batch) x = x.to(device);
      nn::ForwardPass pass;
      loss.add(mean_loss(model, batch, pass, 0).item(), targets);
    }
    loss.add_others();
    return loss;
  }
  static std::vector<Pair> evenly(const std::vector<Pair>& pairs, int64_t count) {
    std::vector<Pair> some(static_cast<size_t>(std::min(count, static_cast<int64_t>(pairs.size()))));
    for (size_t i = 0; i < some.size(); ++i) some[i] = pairs[i * pairs.size() / some.size()];
    return some;
  }
  // Returns the number of rows of the longest length that are as large as the largest batch.
  static int64_t rows_of(const PairBatches& batches) {
    return (batches.max_positions() + batches.longest() - 1) / batches.longest();
  }

  Settings settings_;
  int64_t micro_batches_;
  bool evaluating_, bleu_;
  std::function<void(const std::string&, double)> progress_;
  int64_t empty_ = 0;  // pairs with an empty side
  std::unique_ptr<Tokenizer> tokenizer_;
  SentenceMarks marks_{};
  int64_t vocabulary_ = 0;  // the model's
  Fingerprint fingerprint_;
  std::map<std::string, Fingerprint> extra_inputs_;
  std::vector<std::string> notes_;  // about the validation split
  std::vector<Pair> training_, held_out_, training_sample_;
  std::vector<std::string> references_;                                 // held-out targets, if BLEU is computed
  std::unique_ptr<PairBatches> batches_, validation_, sample_batches_;  // null without such pairs
};
REGISTER_TASK(Translation);

}  // namespace
}  // namespace orrery::models
