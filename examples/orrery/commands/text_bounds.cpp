#include "examples/orrery/commands/text_bounds.h"

#include "engine/types/check.h"
#include "examples/orrery/terminal/talk.h"
#include "models/formats/shown_text.h"

namespace orrery::program {
namespace {

std::string named(const models::Tokenizer& tokenizer, int32_t token) {
  const std::string shown = tokenizer.decode(std::vector<int32_t>{token});
  return shown.empty() ? text(token) : text(token, " (", shown, ")");
}

void say_once(const std::string& sentence) {  // prints a repeated message of several models once
  static std::string last;
  if (sentence != last) talk(models::for_terminal(sentence));
  last = sentence;
}

// Sets and prints the end of texts only if `ends` is given.
void follow(const std::string& command, const std::string& begin, const std::string* ends, Trained& trained) {
  if (!dynamic_cast<const models::LanguageModel*>(trained.model.get())) return;
  auto tokenizer = models::restore_tokenizer(trained.tokenizer);
  std::vector<std::string> told, left_out;
  if (begin == "family" && tokenizer->begins_texts())
    told.push_back("begins with token " + named(*tokenizer, *tokenizer->begin())), left_out.push_back("--begin=no");
  if (ends && *ends == "family" && !tokenizer->ends().empty()) {
    std::vector<std::string> tokens;
    for (const int32_t end : tokenizer->ends()) tokens.push_back(named(*tokenizer, end));
    told.push_back("ends at token " + join(tokens, " or ")), left_out.push_back("--stop_at_end=no");
  }
  if (!told.empty())
    say_once(text("a text ", join(told, " and "), ", as in the folder of the model or of its tokenizer; ",
                  join(left_out, ", "), left_out.size() == 1 ? " turns this off" : " turn this off"));
  models::TokenizerUse use;
  if (begin != "family") use.begins_texts = begin == "yes";
  check(begin != "yes" || tokenizer->begin(), command,
        ": --begin=yes, but the tokenizer has no token that begins a text; leave --begin out");
  if (ends && *ends == "no") use.ends.emplace();
  if (ends && *ends == "yes" && tokenizer->ends().empty()) {
    check(tokenizer->end_of_text().has_value(), command,
          ": --stop_at_end=yes, but the tokenizer has no token that ends a text; leave --stop_at_end out");
    use.ends = {*tokenizer->end_of_text()};
  }
  if (use.begins_texts || use.ends) trained.tokenizer = with_use(std::move(tokenizer), std::move(use))->save();
}

}  // namespace

void follow(const std::string& command, const TextBegin& begin, Trained& trained) {
  follow(command, begin.begin, nullptr, trained);
}
void follow(const std::string& command, const TextBounds& bounds, Trained& trained) {
  follow(command, bounds.begin, &bounds.stop_at_end, trained);
}

models::SamplingSettings sampling_with(const models::LanguageModel& model, const models::Tokenizer& tokenizer,
                                       models::SamplingSettings settings) {
  settings.never = models::numbers_without_token(tokenizer, model.vocabulary());
  settings.ends = tokenizer.ends();
  return settings;
}

}  // namespace orrery::program
