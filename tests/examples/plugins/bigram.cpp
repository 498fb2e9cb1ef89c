// A plug-in with a model that predicts the next token only from the last one.
#include "models/language_model.h"
#include "models/model.h"
#include "nn/layers/embedding.h"

namespace orrery::models {
namespace {

class Bigram final : public LanguageModel {
 public:
  static inline const ModelInfo info{.name = "bigram",
                                     .description = "a table of the next token by the last one",
                                     .source = "a test",
                                     .task = "language_modeling"};
  struct Settings {
    int64_t context = 32, vocabulary = 0;

    template <class V>
    void visit(V& v) {
      v("context", context, "tokens of a row", between(1, 4096));
      v("vocabulary", vocabulary, "tokens that exist; 0: as many as the tokenizer has", between(0, 65536));
    }
  };

  explicit Bigram(const Settings& settings) : settings_(settings), table_(settings.vocabulary, settings.vocabulary) {
    nn::name_paths(*this);
  }
  Tensor forward(const Tensor& tokens, nn::ForwardPass& pass) override {
    if (pass.cache) pass.cache->length = pass.offset() + tokens.size(1);
    return table_(tokens, pass);
  }
  int64_t context() const override { return settings_.context; }
  int64_t vocabulary() const override { return settings_.vocabulary; }
  void visit(nn::Visitor& v) override { v("table", table_); }

 private:
  Settings settings_;
  nn::Embedding table_;
};
REGISTER_MODEL(Bigram);

}  // namespace
}  // namespace orrery::models
