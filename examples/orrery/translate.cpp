// orrery translate: a trained model translates sentences, a line each.
#include <cstdio>
#include <iostream>

#include "engine/base/parallel.h"
#include "examples/orrery/arguments.h"
#include "examples/orrery/commands.h"
#include "examples/orrery/progress.h"
#include "examples/orrery/table.h"
#include "examples/orrery/trained.h"
#include "models/data/bleu.h"
#include "models/data/gzip.h"
#include "models/data/unicode.h"
#include "models/model.h"
#include "models/translation_search.h"

namespace orrery::program {
namespace {

struct TranslateSettings {
  std::string checkpoint, input = "-", reference, device = "cpu";
  models::SearchSettings search{.beam = models::usual_beam};
  int64_t threads = 0;

  template <class V>
  void visit(V& v) {
    v("checkpoint|out_dir", checkpoint, "folder of a run (its last checkpoint) or of one checkpoint");
    v("input", input, "file with a sentence a line; -: the standard input");
    v("reference", reference, "file with their translations by others, line for line: BLEU is told at the end");
    v("beam", search.beam, "unfinished translations that are kept of each sentence; 1: the likeliest words alone",
      between(1, 1000));
    v("length_penalty", search.length_penalty, "0: the likeliest translation; above, longer ones are preferred",
      between(-10, 10));
    v("most_tokens", search.most_tokens, "of a translation; 0: 20 more than twice those of the sentence",
      between(0, 16777216));
    v("batch", search.batch, "sentences at once", between(1, 16384));
    v("threads", threads, "cores to use; 0: all", between(0, 1024));
    v("device", device, "cpu or cuda", one_of({"cpu", "cuda"}));
  }
};

std::vector<std::string> lines_of(const std::string& text, const std::string& file) {
  models::check_utf8(text, "translate: " + file);
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    at = end + 1;
  }
  return lines;
}
std::string all_of(const std::string& input) {
  if (input != "-") return models::read_data_file(input);
  std::string text;
  for (std::string line; std::getline(std::cin, line);) text += line + "\n";
  return text;
}

struct Sources {
  std::vector<std::vector<int32_t>> tokens;  // of each sentence, with its end; the end alone where it cannot be read
  int64_t left_out = 0;                      // sentences that cannot be read
};
// Reports each sentence that cannot be read, by its line.
Sources encode(const std::vector<std::string>& sentences, const models::Tokenizer& tokenizer, int64_t context) {
  const models::SentenceMarks marks = models::sentence_marks(tokenizer);
  Sources sources;
  for (const std::string& sentence : sentences) {
    std::vector<int32_t>& tokens = sources.tokens.emplace_back();
    try {
      tokens = tokenizer.encode(sentence);
      const auto length = static_cast<int64_t>(tokens.size()) + 1;
      check(length <= context, "it has ", length, " tokens with its end, and the model's context is ", context,
            "; divide it");
    } catch (const Error& error) {
      tokens.clear();
      ++sources.left_out;
      std::cerr << "translate: line " << sources.tokens.size() << " is left out: " << for_terminal(error.what())
                << std::endl;
    }
    tokens.push_back(marks.end);
  }
  return sources;
}

}  // namespace

std::string translate_help(const Arguments&) {
  TranslateSettings settings;
  return "Arguments are --key=value:\n" + describe(settings_of(settings)) +
         "\nExample: orrery translate --checkpoint=runs/latest --input=test.de --reference=test.en --beam=5";
}

int translate(const Arguments& arguments) {
  TranslateSettings s;
  const std::vector<std::string> words = read_arguments("translate", arguments, settings_of(s));
  check(words.empty(), "translate: '", words.empty() ? "" : words[0],
        "' is not of the form --key=value; did you mean --input?");
  if (s.threads > 0) set_thread_count(static_cast<int>(s.threads));
  const Device device = parse_device(s.device);
  check_available(device);
  const Trained trained = read_trained("translate", s.checkpoint);
  const std::unique_ptr<models::Tokenizer> tokenizer = models::restore_tokenizer(trained.tokenizer);
  nn::move(*trained.model, device);
  auto& translates = models::model_as<models::TranslationModel>(
      *trained.model, "translate", "one that translates; train one with --model=translation-small");
  const std::vector<std::string> references =
      s.reference.empty() ? std::vector<std::string>() : lines_of(models::read_data_file(s.reference), s.reference);
  const std::vector<std::string> sentences = lines_of(all_of(s.input), s.input == "-" ? "the standard input" : s.input);
  check(s.reference.empty() || references.size() == sentences.size(), "translate: ", sentences.size(),
        " sentences and ", references.size(), " lines in ", s.reference, "; each sentence needs its reference");
  const Sources sources = encode(sentences, *tokenizer, translates.context());
  std::vector<std::string> translations;
  {
    Progress progress(std::cerr);
    s.search.progress = [&](double share) { progress.share("translated", share); };
    translations = models::translate_to_text(translates, sources.tokens, *tokenizer, s.search);
  }
  for (const std::string& translation : translations) std::cout << for_output(translation) << "\n";
  std::cout << std::flush;
  const int code = sources.left_out > 0 ? 1 : 0;
  if (s.reference.empty()) return code;
  const models::Bleu score = models::bleu(translations, references);
  char numbers[160];
  std::snprintf(numbers, sizeof numbers, "BLEU %.2f (%.1f/%.1f/%.1f/%.1f, brevity penalty %.3f, %s)", score.score,
                score.precisions[0], score.precisions[1], score.precisions[2], score.precisions[3],
                score.brevity_penalty, models::bleu_signature);
  std::cerr << numbers << std::endl;
  return code;
}

}  // namespace orrery::program
