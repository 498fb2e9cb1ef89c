#include "models/data/pairs.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "engine/base/check.h"
#include "engine/base/wording.h"
#include "models/data/data_format.h"
#include "models/data/gzip.h"
#include "models/data/unicode.h"

namespace orrery::models {
namespace {

std::vector<std::string> lines_of(const std::string& path) {
  const std::string bytes = read_data_file(path);
  check(!bytes.empty(), "pairs: ", path, " is empty");
  check_utf8(bytes, "pairs: " + path);
  std::vector<std::string> lines;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    lines.push_back(bytes.substr(at, end - at));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    at = end + 1;
  }
  return lines;
}

std::string column_of(const std::string& line, int64_t column, const std::string& path, size_t number) {
  size_t begin = 0;
  for (int64_t i = 1; i < column; ++i) {
    const size_t tab = line.find('\t', begin);
    check(tab != std::string::npos, "pairs: line ", number, " of ", path, " has ", counted(i, "column"),
          ", and column ", column, " is asked for; columns have tabs between them (two files of "
          "lines need --translations=FILE, two for validation --validation_translations=FILE)");
    begin = tab + 1;
  }
  return line.substr(begin, line.find('\t', begin) - begin);
}

std::vector<TextPair> read_columns(const PairFiles& files) {
  std::vector<TextPair> pairs;
  std::string document;
  size_t number = 0;
  int64_t its_lines = 0;  // of the pair that is being read
  for (const std::string& line : lines_of(files.source)) {
    ++number;
    const auto column = [&](int64_t which) { return column_of(line, which, files.source, number); };
    const std::string source = column(files.source_column), target = column(files.target_column);
    const std::string its_document = files.document_column ? column(files.document_column) : "";
    const bool full = files.document_lines && its_lines == files.document_lines;
    if (files.document_column && number > 1 && its_document == document && !full) {
      pairs.back().first += " " + source;
      pairs.back().second += " " + target;
      ++its_lines;
    } else {
      pairs.emplace_back(source, target);
      its_lines = 1;
    }
    document = its_document;
  }
  return pairs;
}

int64_t length(const std::vector<int32_t>& tokens) { return static_cast<int64_t>(tokens.size()); }

REGISTER_DATA_FORMAT(aligned_files, {"aligned_files",
                                     "sentences, one a line, and their translations in a file of as many "
                                     "lines: --data=FILE --translations=FILE",
                                     "pairs"});
REGISTER_DATA_FORMAT(columns,
                     {"columns",
                      "a file of columns with tabs between them: --source_column, --target_column, and "
                      "--document_column, whose equal neighbours make a document, at most --document_lines of them a "
                      "pair",
                      "pairs"});

}  // namespace

std::vector<TextPair> read_pairs(const PairFiles& files) {
  check(files.document_lines == 0 || files.document_column != 0, "pairs: document_lines ", files.document_lines,
        " cuts documents, and none are told apart; say by which column with --document_column");
  if (files.target.empty()) return read_columns(files);
  check(files.document_column == 0, "pairs: documents are told apart by a column; ", files.source, " and ",
        files.target, " have none");
  std::vector<std::string> sources = lines_of(files.source), targets = lines_of(files.target);
  check(sources.size() == targets.size(), "pairs: ", files.source, " has ", sources.size(), " lines and ", files.target,
        " has ", targets.size(), "; each line of the one must be the translation of that of the other");
  std::vector<TextPair> pairs;
  for (size_t i = 0; i < sources.size(); ++i) pairs.emplace_back(std::move(sources[i]), std::move(targets[i]));
  return pairs;
}

std::string text_of(std::span<const TextPair> pairs) {
  std::string all;
  for (const auto& [source, target] : pairs) all += source + "\n";
  for (const auto& [source, target] : pairs) all += target + "\n";
  return all;
}

Fingerprint fingerprint_of(std::span<const TextPair> pairs) {
  const std::string all = text_of(pairs);
  return {all.size(), sha256(std::as_bytes(std::span(all)))};
}

SentenceMarks sentence_marks(const Tokenizer& tokenizer) {
  SentenceMarks marks{.begin = 0, .end = 0, .vocabulary = tokenizer.size()};
  const auto token = [&](std::optional<int32_t> own) { return own ? *own : static_cast<int32_t>(marks.vocabulary++); };
  marks.begin = token(tokenizer.begin());
  marks.end = token(tokenizer.end());
  marks.never = numbers_without_token(tokenizer, tokenizer.size());
  return marks;
}

std::vector<Pair> encode(std::span<const TextPair> pairs, const Tokenizer& tokenizer, const SentenceMarks& marks) {
  std::vector<Pair> all;
  all.reserve(pairs.size());
  const auto with_end = [&](const std::string& text) {
    std::vector<int32_t> tokens = tokenizer.encode(text);
    tokens.push_back(marks.end);
    return tokens;
  };
  for (const auto& [source, target] : pairs) all.push_back({with_end(source), with_end(target)});
  return all;
}

std::pair<Tensor, Tensor> padded(std::span<const std::vector<int32_t>> rows, int32_t padding) {
  int64_t longest = 1;
  std::vector<int32_t> lengths;
  for (const auto& row : rows) {
    longest = std::max(longest, length(row));
    lengths.push_back(static_cast<int32_t>(row.size()));
  }
  const auto count = static_cast<int64_t>(rows.size());
  Tensor all = Tensor::empty(Shape{count, longest}, Dtype::i32, Device::cpu);
  int32_t* place = all.mutable_data<int32_t>();
  for (const auto& row : rows) {
    std::fill_n(std::copy(row.begin(), row.end(), place), longest - length(row), padding);
    place += longest;
  }
  return {all, Tensor::from(Shape{count}, lengths)};
}

PairBatch batch_of(std::span<const Pair* const> pairs, const SentenceMarks& marks) {
  std::vector<std::vector<int32_t>> sources, inputs, targets;
  for (const Pair* const pair : pairs) {
    sources.push_back(pair->source);
    targets.push_back(pair->target);
    inputs.push_back({marks.begin});
    inputs.back().insert(inputs.back().end(), pair->target.begin(), pair->target.end() - 1);
  }
  PairBatch batch;
  std::tie(batch.sources, batch.source_lengths) = padded(sources);
  std::tie(batch.inputs, batch.target_lengths) = padded(inputs);
  batch.targets = padded(targets, -1).first;
  return batch;
}

PairBatches::PairBatches(std::span<const Pair> pairs, const SentenceMarks& marks, int64_t most_tokens, uint64_t seed)
    : pairs_(pairs), marks_(marks), key_(RandomKey{seed, 0}.derive("pairs")) {
  check(!pairs.empty(), "pairs: there are none to make batches of");
  check(most_tokens >= 1, "pairs: a batch of ", most_tokens, " tokens holds nothing; give at least 1");
  order(0);
  int64_t tokens = 0, rows = 0, longest = 0;
  for (size_t i = 0; i < sorted_.size(); ++i) {
    const Pair& pair = pairs_[sorted_[i]];
    const int64_t source = length(pair.source), target = length(pair.target);
    if (rows == 0 || tokens + source + target > most_tokens) {
      begins_.push_back(i);
      tokens = rows = longest = 0;
    }
    tokens += source + target, all_tokens_ += source + target;
    longest = std::max({longest, source, target});
    most_places_ = std::max(most_places_, ++rows * longest);
    longest_ = std::max(longest_, longest);
  }
  begins_.push_back(sorted_.size());
  ordered_ = -1;  // the turns of the batches were not drawn yet
}

void PairBatches::order(int64_t epoch) const {
  if (ordered_ == epoch) return;
  const RandomKey key = key_.derive(epoch), of_pairs = key.derive("pairs"), of_batches = key.derive("batches");
  sorted_.resize(pairs_.size());
  std::iota(sorted_.begin(), sorted_.end(), size_t{0});
  std::vector<uint64_t> drawn(pairs_.size());
  for (size_t i = 0; i < drawn.size(); ++i) drawn[i] = below(of_pairs, i, uint64_t{1} << 63);
  const auto place = [&](size_t i) {
    return std::tuple(pairs_[i].target.size(), pairs_[i].source.size(), drawn[i], i);
  };
  std::sort(sorted_.begin(), sorted_.end(), [&](size_t a, size_t b) { return place(a) < place(b); });
  turn_.resize(begins_.empty() ? 0 : begins_.size() - 1);
  std::iota(turn_.begin(), turn_.end(), size_t{0});
  for (size_t i = turn_.size(); i > 1; --i) std::swap(turn_[i - 1], turn_[below(of_batches, i, i)]);
  ordered_ = epoch;
}

std::vector<const Pair*> PairBatches::pairs_at(int64_t number) const {
  order(number / of_epoch());
  const size_t batch = turn_[static_cast<size_t>(number % of_epoch())];
  std::vector<const Pair*> chosen;
  for (size_t i = begins_[batch]; i < begins_[batch + 1]; ++i) chosen.push_back(&pairs_[sorted_[i]]);
  return chosen;
}

}  // namespace orrery::models
