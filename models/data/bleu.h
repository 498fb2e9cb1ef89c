// BLEU as sacrebleu computes it with the signature nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp.
//   BLEU = 100 b exp(1/4 sum_n ln p_n),   p_n = matches of n-grams / n-grams,   n = 1 .. 4
// Counts are sums over all sentences. An n-gram of a sentence matches at most as often as its
// reference has it. b = 1, or exp(1 - r / c) if the c tokens of the translations are fewer than the
// r of the references. An order without a match counts 1 / 2^k matches, k = 1 for the first such
// order, 2 for the next (Chen and Cherry 2014, method 3). BLEU is 0 without any match, or if an
// order has no n-gram. Papineni et al. 2002; Post 2018, arXiv:1804.08771.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::models {

constexpr const char* bleu_signature = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp";

struct Bleu {
  double score = 0;
  std::array<double, 4> precisions{};  // in percent
  double brevity_penalty = 1;
  int64_t tokens = 0, reference_tokens = 0;
};
// Throws Error if the numbers of translations and references differ.
Bleu bleu(std::span<const std::string> translations, std::span<const std::string> references);

// Splits a line like mteval-v13a.pl: words, and each symbol alone unless within a number or word.
std::vector<std::string> tokens_13a(std::string_view line);

}  // namespace orrery::models
