#include "examples/orrery/commands/text_bounds.h"

#include "engine/types/check.h"
#include "examples/orrery/terminal/messages.h"
#include "models/formats/shown_text.h"

namespace orrery::program {
namespace {

std::string token_text(const models::Tokenizer& tokenizer, int32_t token) {
  const std::string shown = tokenizer.decode(std::vector<int32_t>{token});
  return shown.empty() ? text(token) : text(token, " '", shown, "'");
}

void print_once(const std::string& message) {  // prints a repeated message of several models once
  static std::string last;
  if (message != last) print_message(models::for_terminal(message));
  last = message;
}

// Sets and prints the end of texts only if `ends` is given.
void apply_bounds(const std::string& command, const std::string& begin, const std::string* ends, LoadedRun& trained) {
  if (!dynamic_cast<const models::LanguageModel*>(trained.model.get())) return;
  auto tokenizer = models::restore_tokenizer(trained.tokenizer);
  std::vector<std::string> notes, left_out;
  if (begin == "family" && tokenizer->begins_texts())
    notes.push_back("begins with token " + token_text(*tokenizer, *tokenizer->begin())),
        left_out.push_back("--begin=no");
  if (ends && *ends == "family" && !tokenizer->ends().empty()) {
    std::vector<std::string> tokens;
    for (const int32_t end : tokenizer->ends()) tokens.push_back(token_text(*tokenizer, end));
    notes.push_back("ends at token " + join(tokens, " or ")), left_out.push_back("--stop_at_end=no");
  }
  if (!notes.empty())
    print_once(text("a text ", join(notes, " and "), ", as in the folder of the model or of its tokenizer; ",
                    join(left_out, ", "), left_out.size() == 1 ? " turns this off" : " turn this off"));
  models::TokenizerOverrides use;
  if (begin != "family") use.begins_texts = begin == "yes";
  check(begin != "yes" || tokenizer->begin(), command,
        ": --begin=yes, but the tokenizer has no token that begins a text; leave --begin out");
  if (ends && *ends == "no") use.ends.emplace();
  if (ends && *ends == "yes" && tokenizer->ends().empty()) {
    check(tokenizer->end_of_text().has_value(), command,
          ": --stop_at_end=yes, but the tokenizer has no token that ends a text; leave --stop_at_end out");
    use.ends = {*tokenizer->end_of_text()};
  }
  if (use.begins_texts || use.ends) trained.tokenizer = with_overrides(std::move(tokenizer), std::move(use))->save();
}

}  // namespace

void apply_bounds(const std::string& command, const TextBegin& begin, LoadedRun& trained) {
  apply_bounds(command, begin.begin, nullptr, trained);
}
void apply_bounds(const std::string& command, const TextBounds& bounds, LoadedRun& trained) {
  apply_bounds(command, bounds.begin, &bounds.stop_at_end, trained);
}

models::SamplingSettings sampling_with(const models::LanguageModel& model, const models::Tokenizer& tokenizer,
                                       models::SamplingSettings settings) {
  settings.never = models::ids_without_token(tokenizer, model.vocabulary());
  settings.ends = tokenizer.ends();
  return settings;
}

}  // namespace orrery::program
