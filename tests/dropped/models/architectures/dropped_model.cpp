// Predicts the next token from the current token only:  logits = E[token] W^T
#include <memory>

#include "engine/ops/ops.h"
#include "models/model.h"
#include "nn/layers/embedding.h"
#include "nn/layers/initial_weights.h"
#include "nn/layers/linear.h"

namespace orrery::models {
namespace {

struct DroppedModelSettings {
  int64_t vocabulary = 0, context = 64, width = 16;
  Spec initialization = parse_spec("0.02");
  template <class V>
  void visit(V& v) {
    v("vocabulary", vocabulary, "tokens that exist; 0: as many as the tokenizer has", between(0, 1048576));
    v("context", context, "the most tokens", between(1, 16777216));
    v("width", width, "channels of an embedding", between(1, 65536));
    v("initialization", initialization, "standard deviation of weights at the start");
  }
};

class DroppedModel final : public nn::Module {
 public:
  static inline const ModelInfo info{.name = "dropped_model",
                                     .description = "a table of pairs of tokens, for a test",
                                     .source = "a test",
                                     .task = "language_modeling"};
  using Settings = DroppedModelSettings;

  explicit DroppedModel(const Settings& s)
      : embedding_(s.vocabulary, s.width, nn::initial_weights(s.initialization, s.width).embedding()),
        head_(Shape{s.vocabulary, s.width},
              nn::initial_weights(s.initialization, s.width).head(s.width, s.vocabulary)) {
    head_.is_lookup_table = true;
    nn::name_paths(*this);
  }
  Tensor forward(const Tensor& tokens, nn::ForwardPass& pass) override {
    return nn::linear(embedding_(tokens, pass), head_.value);
  }
  void visit(nn::Visitor& v) override {
    v("embedding", embedding_);
    v("head", head_);
  }

 private:
  nn::Embedding embedding_;
  nn::Parameter head_;
};
REGISTER_MODEL(DroppedModel);

}  // namespace
}  // namespace orrery::models
