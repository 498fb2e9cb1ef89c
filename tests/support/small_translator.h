// A tiny encoder-decoder for exhaustive tests, and token pairs for it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/autograd/autograd.h"
#include "models/architectures/encoder_decoder.h"
#include "models/data/sentence_pairs.h"
#include "nn/losses/base/loss.h"
#include "tests/support/parameters.h"

namespace orrery::testing {

inline constexpr models::SentenceMarks small_marks{.begin = 9, .end = 10, .vocabulary = 11};

inline models::EncoderDecoderSettings small_translator(const std::string& attention = "softmax",
                                                       const std::string& position = "sinusoidal(scale=1)") {
  models::EncoderDecoderSettings s;
  s.layers = 2, s.heads = 2, s.width = 8, s.context = 12, s.vocabulary = small_marks.vocabulary, s.dropout = 0;
  s.attention = parse_spec(attention), s.position = parse_spec(position);
  if (s.attention.name == "gau") s.cross_attention = parse_spec("softmax");
  return s;
}
// Returns an f64 model far from its initial values; bounded parameters are at their midpoint.
inline std::unique_ptr<models::EncoderDecoder> make_translator(const models::EncoderDecoderSettings& settings) {
  auto model = std::make_unique<models::EncoderDecoder>(settings);
  nn::convert(*model, Dtype::f64);
  nn::initialize(*model, 3);
  randomize_parameters(*model, 0.4);
  return model;
}

inline std::vector<models::Pair> small_pairs() {
  return {{{1, 2, 3, 4, 10}, {5, 6, 10}}, {{3, 10}, {1, 1, 2, 8, 7, 10}}, {{7, 7, 2, 10}, {4, 10}}};
}
inline models::PairBatch batch_of(const std::vector<models::Pair>& pairs) {
  std::vector<const models::Pair*> all;
  for (const models::Pair& pair : pairs) all.push_back(&pair);
  return models::batch_of(all, small_marks);
}
inline Tensor logits_of(models::TranslationModel& model, const models::PairBatch& batch, nn::ForwardPass& pass) {
  model.encode(batch.sources, batch.source_lengths, pass);
  pass.lengths = batch.target_lengths;
  return model(batch.inputs, pass);
}
// Returns the loss with all extra losses.
inline Tensor loss_of(models::TranslationModel& model, const models::PairBatch& batch, nn::ForwardPass& pass) {
  Tensor loss = nn::cross_entropy(logits_of(model, batch, pass), batch.targets, 0.1);
  for (const nn::ForwardPass::Loss& extra : pass.losses) loss = loss + extra.value.to(loss.dtype());
  return loss;
}

}  // namespace orrery::testing
