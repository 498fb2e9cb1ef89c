// The text of --edits and of a claim's variant: parsed for a small model, which then runs with the edits.
#include <string>

#include "engine/autograd/autograd.h"
#include "models/inspection/base/edits.h"
#include "models/model.h"
#include "models/training/settings.h"
#include "nn/base/initialization.h"
#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;
using namespace orrery;

nn::Module& small_model() {
  static const std::unique_ptr<nn::Module> model = [] {
    auto made = models::make_model(models::make_settings({{"model", "gpt"},
                                                          {"vocabulary", "5"},
                                                          {"context", "4"},
                                                          {"layers", "1"},
                                                          {"heads", "2"},
                                                          {"width", "4"},
                                                          {"attention", "softmax(persistent=slots(2))"}}));
    nn::initialize(*made, 1);
    return made;
  }();
  return *model;
}

void read_edits(const std::string&, std::string_view bytes) {
  models::Edits edits(std::string(bytes), small_model());
  const Tensor tokens = Tensor::from(Shape{1, 3}, std::vector<int32_t>{0, 1, 2});
  const auto run = [&] {
    const NoGrad guard;
    nn::ForwardPass pass;
    const Tensor logits = small_model()(tokens, pass);
    promise(logits.shape() == Shape{1, 3, 5}, "edits change the shape of the logits");
  };
  const auto example = models::text_example(dynamic_cast<models::LanguageModel&>(small_model()),
                                            models::restore_tokenizer(R"({"name": "numbers", "size": 5})"), "0 1 2");
  edits.learn_means("this text", run);
  edits.learn_other(*example, *example);
  edits.begin();
  example->run();
  run();
}

REGISTER_FORMAT(edits, {.name = "edits",
                        .readers = {"models/inspection/base/edit_text.cpp", "models/inspection/base/edits.cpp"},
                        .read = read_edits,
                        .memory_multiple = 1024,
                        .memory_base = 64 << 20,
                        .words = {"blocks.0.attention", "blocks.0.feed_forward", ".unit3", ".slot1", ".1.slot1",
                                  ".1.key2", "embedding", ".residual", "@1", "@1-2", "*0", "=0", "=mean", "=other",
                                  "+2(other-this)", ";", "logits", ".channel1"}});

}  // namespace
