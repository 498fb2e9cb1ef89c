// Labelled texts of a probe: the state of each text's last token. A text that is longer than the
// context keeps its last tokens.
#include <algorithm>
#include <numeric>
#include <set>

#include "engine/ops/ops.h"
#include "engine/types/check.h"
#include "engine/types/format.h"
#include "models/data/labelled_texts.h"
#include "models/data/tokenizer.h"
#include "models/evaluation/few_shot.h"

namespace orrery::models {
namespace {

constexpr size_t tokens_per_batch = 1 << 13;

class ProbeTexts final : public ProbeExamples {
 public:
  ProbeTexts(const ProbeData& from, int64_t context) : context_(static_cast<size_t>(context)) {
    const auto tokenizer = restore_tokenizer(from.tokenizer);
    LabelledTexts all = read_labelled_texts(from.data, from.text_column, from.label_column);
    owner = from.data, classes = all.classes;
    if (from.test_data.empty()) {
      split(all, from.test_fraction, *tokenizer);
    } else {
      LabelledTexts tests = read_labelled_texts(from.test_data, from.text_column, from.label_column);
      tests.relabel(classes, owner);
      for (size_t i = 0; i < all.texts.size(); ++i) add(Split::train, all, i, *tokenizer);
      for (size_t i = 0; i < tests.texts.size(); ++i) add(Split::test, tests, i, *tokenizer);
    }
    if (shortened_ > 0)
      notes.push_back(text("texts of ", owner, " that are longer than the context and keep only their last ", context,
                           " tokens: ", with_commas(shortened_)));
    const std::set<std::vector<int32_t>> known(train_.begin(), train_.end());
    const auto both = std::ranges::count_if(test_, [&](const auto& tokens) { return known.contains(tokens); });
    if (both > 0)
      notes.push_back(text("texts for tests that are also among the training texts of ", owner, ": ", both, " of ",
                           test_.size(), "; the accuracy is that of texts the probe may have seen"));
  }

  // Texts of equal length are one batch: no padding.
  Tensor features(const FeatureReader& read, Split split, std::span<const int64_t> indices,
                  const std::function<void(size_t)>& progress) const override {
    const std::vector<std::vector<int32_t>>& texts = split == Split::train ? train_ : test_;
    const auto length_of = [&](size_t i) { return texts[static_cast<size_t>(indices[i])].size(); };
    std::vector<size_t> order(indices.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return length_of(a) < length_of(b); });
    std::vector<Tensor> parts;
    for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
      const size_t length = length_of(order[begin]), most = std::max<size_t>(1, tokens_per_batch / length);
      std::vector<int32_t> tokens;
      for (end = begin; end < order.size() && end - begin < most && length_of(order[end]) == length; ++end) {
        const std::vector<int32_t>& its = texts[static_cast<size_t>(indices[order[end]])];
        tokens.insert(tokens.end(), its.begin(), its.end());
      }
      parts.push_back(
          read(Tensor::from(Shape{static_cast<int64_t>(end - begin), static_cast<int64_t>(length)}, tokens)));
      progress(end);
    }
    std::vector<int32_t> rows(order.size());  // of the texts, as they were given
    for (size_t i = 0; i < order.size(); ++i) rows[order[i]] = static_cast<int32_t>(i);
    return index_select(concatenate(parts, 0), Tensor::from(Shape{static_cast<int64_t>(rows.size())}, rows));
  }

 private:
  // The last texts of each class are for tests, as for images.
  void split(const LabelledTexts& all, double fraction, const Tokenizer& tokenizer) {
    std::vector<int64_t> left(classes.size());
    for (const int32_t label : all.labels) ++left[static_cast<size_t>(label)];
    std::vector<int64_t> tests;
    for (const int64_t count : left) tests.push_back(static_cast<int64_t>(static_cast<double>(count) * fraction));
    for (size_t i = 0; i < all.texts.size(); ++i) {
      const auto label = static_cast<size_t>(all.labels[i]);
      add(left[label]-- > tests[label] ? Split::train : Split::test, all, i, tokenizer);
    }
  }
  void add(Split split, const LabelledTexts& from, size_t i, const Tokenizer& tokenizer) {
    const std::string where = text("evaluate: ", from.path, ": text ", i + 1, " (of the class '",
                                   from.classes[static_cast<size_t>(from.labels[i])], "')");
    std::vector<int32_t> tokens;
    try {
      tokens = encode_text(tokenizer, from.texts[i]);
    } catch (const Error& error) {
      fail(where, ": ", error.what());
    }
    check(!tokens.empty(), where, " is empty; leave it out");
    if (tokens.size() > context_) {
      tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(context_));
      ++shortened_;
    }
    (split == Split::train ? train_ : test_).push_back(std::move(tokens));
    (split == Split::train ? train_labels : test_labels).push_back(from.labels[i]);
  }

  size_t context_;
  std::vector<std::vector<int32_t>> train_, test_;
  int64_t shortened_ = 0;
};

}  // namespace

std::unique_ptr<ProbeExamples> probe_texts(const ProbeData& from, int64_t context) {
  return std::make_unique<ProbeTexts>(from, context);
}

}  // namespace orrery::models
