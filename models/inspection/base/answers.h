// What a model says of the right answers: the numbers by which looks tell better from worse.
#pragma once

#include <span>
#include <vector>

#include "models/inspection/base/subject.h"

namespace orrery::models {

// What is asked of each row of the logits.
struct Answers {
  std::vector<int32_t> of_rows;  // -1: nothing
  bool known;                    // no: no row has a right answer, and these are what the model itself finds likeliest
  size_t last() const;           // the last row that has one
  std::string described() const { return known ? "the right answer" : "the model's own answer"; }
};
Answers answers_to(const Subject& subject, const Tensor& logits);

// ln p of one answer, p = softmax of a row of logits.
double log_probability(std::span<const double> row, int32_t answer);
// The same of every row of logits (rows, answers); NaN where nothing is asked.
std::vector<double> log_probabilities(const Tensor& logits, std::span<const int32_t> answers);
// Minus their mean over the rows in which something is asked; NaN if there is none.
double loss_of(const Tensor& logits, std::span<const int32_t> answers);
int32_t likeliest(std::span<const double> row);  // the first of several
// 1: none is likelier.
int64_t rank_of(std::span<const double> row, int32_t answer);
// The answers in the order of their numbers, the largest first, `count` at most.
std::vector<int32_t> largest(std::span<const double> row, int64_t count);

// The words that stand before the rows of logits: those of the places where the last value arose, if there are as
// many; one row is of the whole example.
Subject::Words words_of_rows(const Subject& subject, const std::string& path, int64_t rows);

}  // namespace orrery::models
