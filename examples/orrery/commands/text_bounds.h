// Tokens that begin and end texts of language models: `--begin` and `--stop_at_end`.
#pragma once

#include <string>

#include "examples/orrery/commands/load_run.h"
#include "models/data/tokenizer.h"
#include "models/language_model.h"
#include "models/training/generation.h"

namespace orrery::program {

// `family`: as the imported model's folder specifies. A model trained here has no end token, and a
// begin token if its tokenizer's folder specifies one.
struct TextBegin {
  std::string begin = "family";

  template <class V>
  void visit(V& v) {
    v("begin", begin,
      "start each text with the begin token; yes, no, or family: as the files of the imported model or of its "
      "tokenizer specify",
      one_of({"family", "yes", "no"}));
  }
};
struct TextBounds : TextBegin {
  std::string stop_at_end = "family";

  template <class V>
  void visit(V& v) {
    TextBegin::visit(v);
    v("stop_at_end", stop_at_end,
      "stop at the token that ends a text; yes, no, or family: as the files of the imported model specify",
      one_of({"family", "yes", "no"}));
  }
};

// Applies them to the tokenizer; prints the family's choices to standard error. Errors begin with
// the command: the tokenizer has no such token.
void apply_bounds(const std::string& command, const TextBegin& begin, LoadedRun& trained);
void apply_bounds(const std::string& command, const TextBounds& bounds, LoadedRun& trained);

// Returns settings that sample only the tokenizer's tokens and stop at its end tokens.
models::SamplingSettings sampling_with(const models::LanguageModel& model, const models::Tokenizer& tokenizer,
                                       models::SamplingSettings settings);

}  // namespace orrery::program
