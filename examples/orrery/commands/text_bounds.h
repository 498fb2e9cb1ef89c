// What stands around a text that a model of language reads or writes: `--begin` and `--stop_at_end`.
#pragma once

#include <string>

#include "examples/orrery/commands/trained.h"
#include "models/data/tokenizer.h"
#include "models/language_model.h"
#include "models/training/generation.h"

namespace orrery::program {

// `family`: as the folder says that the model was imported from; a model that was trained here has no end, and what
// begins a text where its tokenizer's folder says so.
struct TextBegin {
  std::string begin = "family";

  template <class V>
  void visit(V& v) {
    v("begin", begin,
      "the token that begins a text stands before each; family: as the folder says that the model was imported from",
      one_of({"family", "yes", "no"}));
  }
};
struct TextBounds : TextBegin {
  std::string stop_at_end = "family";

  template <class V>
  void visit(V& v) {
    TextBegin::visit(v);
    v("stop_at_end", stop_at_end,
      "a text ends where the model writes a token that ends one; family: as the folder says that the model was "
      "imported from",
      one_of({"family", "yes", "no"}));
  }
};

// Lets the tokenizer of a language model follow them; what a family asks for is told on the standard error.  Errors
// begin with the command: the tokenizer has no such token.
void follow(const std::string& command, const TextBegin& begin, Trained& trained);
void follow(const std::string& command, const TextBounds& bounds, Trained& trained);

// Sampling that draws what the tokenizer has tokens for, and ends where it says.
models::SamplingSettings sampling_with(const models::LanguageModel& model, const models::Tokenizer& tokenizer,
                                       models::SamplingSettings settings);

}  // namespace orrery::program
