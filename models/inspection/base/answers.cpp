#include "models/inspection/base/answers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/math/scalar.h"
#include "engine/types/check.h"

namespace orrery::models {

size_t Answers::last() const {
  for (size_t row = of_rows.size(); row-- > 0;)
    if (of_rows[row] >= 0) return row;
  fail("inspect: the example has no target; give a longer one");
}

Answers answers_to(const Subject& subject, const Tensor& logits) {
  Answers answers{subject.answers(), true};
  if (std::any_of(answers.of_rows.begin(), answers.of_rows.end(), [](int32_t answer) { return answer >= 0; }))
    return answers;
  answers.known = false, answers.of_rows.clear();
  for (int64_t row = 0; row < logits.size(0); ++row) answers.of_rows.push_back(likeliest(logits[row].to_vector()));
  return answers;
}

double log_probability(std::span<const double> row, int32_t answer) {
  double largest = -std::numeric_limits<double>::infinity(), total = 0;
  for (const double z : row) largest = std::max(largest, z);
  constexpr size_t at_once = 64;  // exponentials per vectorized loop; std::exp would be a call each
  double exponentials[at_once];
  for (size_t first = 0; first < row.size(); first += at_once) {
    const size_t here = std::min(at_once, row.size() - first);
    for (size_t i = 0; i < here; ++i) exponentials[i] = orrery::scalar::exp(row[first + i] - largest);
    for (size_t i = 0; i < here; ++i) total += exponentials[i];
  }
  return row[static_cast<size_t>(answer)] - largest - std::log(total);
}

std::vector<double> log_probabilities(const Tensor& logits, std::span<const int32_t> answers) {
  const std::vector<double> all = logits.to_vector();
  const auto width = static_cast<size_t>(logits.size(1));
  std::vector<double> each;
  for (size_t row = 0; row < answers.size(); ++row)
    each.push_back(answers[row] < 0 ? NAN : log_probability(std::span(all).subspan(row * width, width), answers[row]));
  return each;
}

double loss_of(const Tensor& logits, std::span<const int32_t> answers) {
  const std::vector<double> each = log_probabilities(logits, answers);
  double sum = 0, count = 0;
  for (size_t row = 0; row < answers.size(); ++row)
    if (answers[row] >= 0) sum -= each[row], ++count;
  return sum / count;  // 0 / 0 = NaN without targets
}

int32_t likeliest(std::span<const double> row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

int64_t rank_of(std::span<const double> row, int32_t answer) {
  const double own = row[static_cast<size_t>(answer)];
  return 1 + std::count_if(row.begin(), row.end(), [&](double z) { return z > own; });
}

std::vector<int32_t> largest(std::span<const double> row, int64_t count) {
  std::vector<int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t kept = std::min(order.size(), static_cast<size_t>(std::max<int64_t>(count, 0)));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    [&](int32_t a, int32_t b) {
                      const double x = row[static_cast<size_t>(a)], y = row[static_cast<size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  order.resize(kept);
  return order;
}

Subject::Words words_of_rows(const Subject& subject, const std::string& path, int64_t rows) {
  const Subject::Words& words = subject.places(path);
  if (static_cast<int64_t>(words.size()) == rows) return words;
  return Subject::Words(static_cast<size_t>(rows), "whole example");
}

}  // namespace orrery::models
