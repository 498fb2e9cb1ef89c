// orrery translate: translates sentences, one per line.
#include <cstdio>
#include <iostream>

#include "engine/system/files.h"
#include "engine/system/machine_memory.h"
#include "engine/system/parallel.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/edits_argument.h"
#include "examples/orrery/commands/load_run.h"
#include "examples/orrery/commands/text_argument.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/table.h"
#include "models/architectures/translation_search.h"
#include "models/data/bleu.h"
#include "models/data/lines.h"
#include "models/data/text_format.h"
#include "models/model.h"
#include "models/training/memory_plan.h"

namespace orrery::program {
namespace {

struct TranslateSettings {
  std::string checkpoint, input = "-", reference, edits, device = "cpu";
  models::SearchSettings search{.beam = models::default_beam};
  int64_t threads = 0;

  template <class V>
  void visit(V& v) {
    v("checkpoint|out_dir", checkpoint, "another way to give RUN: the folder of a run or of one checkpoint");
    v("input", input, "file or pipe with one sentence per line; -: standard input");
    v("reference", reference, "file with reference translations, line by line; prints BLEU at the end");
    v("beam", search.beam, "beam size: partial translations kept per sentence; 1: greedy", between(1, 1000));
    v("length_penalty", search.length_penalty,
      "preference for longer translations; 0: none, the most likely translation", between(-10, 10));
    v("max_tokens|most_tokens", search.max_tokens,
      "limit of tokens per translation; 0: 20 more than twice those of the sentence", between(0, 16777216));
    v("batch_size|batch", search.batch_size, "sentences per batch", between(1, 16384));
    v("edits", edits, edits_help);
    v("threads", threads, "cores to use; 0: OMP_NUM_THREADS, else all", between(0, 1024));
    v("device", device, "cpu or cuda", one_of({"cpu", "cuda"}));
  }
};

constexpr const char* fewer = "translate fewer sentences at a time";

std::string what_of(const std::string& input) { return "translate: " + (input == "-" ? "the standard input" : input); }
void each_sentence(const std::string& input, const models::TakeLine& take) {
  if (is_pipe(input)) return each_line_of_pipe(input, what_of(input), take);
  check(folder_exists(input) || !models::has_many_documents(models::TextPath(input)), "translate: ", input,
        " has fields or columns, but translate reads lines; give a file with one sentence per line");
  models::each_kept_line(input, what_of(input), fewer, take);
}
std::vector<std::string> lines_of(const std::string& file) {
  std::vector<std::string> lines;
  const std::string what = what_of(file);
  each_sentence(file, [&](std::string_view line) { models::add_checked(lines, std::string(line), what, fewer); });
  return lines;
}

struct Sources {
  std::vector<std::vector<int32_t>> tokens;  // per sentence, with its end token; only that if rejected
  int64_t left_out = 0;                      // rejected sentences
};
// Reports each rejected sentence by its line: it is too long or cannot be encoded.
Sources read_sources(const std::string& input, const models::Tokenizer& tokenizer, int64_t context) {
  constexpr size_t at_once = size_t{1} << 16;  // sentences per check of memory
  constexpr double held = 64, later = 96;      // bytes per short sentence: its tokens, its translation
  const models::SentenceMarks marks = models::sentence_marks(tokenizer);
  const std::string what = what_of(input);
  Sources sources;
  each_sentence(input, [&](std::string_view sentence) {
    if (const size_t before = sources.tokens.size(); before % at_once == 0)
      check_memory(what, held * at_once + later * static_cast<double>(before), fewer);
    std::vector<int32_t> tokens;
    try {
      tokens = tokenizer.encode(sentence);
      const auto length = static_cast<int64_t>(tokens.size()) + 1;
      check(length <= context, "it has ", length, " tokens with its end token, but the model's context is ", context,
            "; split the sentence");
    } catch (const Error& error) {
      tokens.clear();
      ++sources.left_out;
      print_message(text("translate: line ", sources.tokens.size() + 1, " is left out: ", for_terminal(error.what())));
    }
    tokens.reserve(tokens.size() + 1);
    tokens.push_back(marks.end);
    models::add_checked(sources.tokens, std::move(tokens), what, fewer);
  });
  return sources;
}

}  // namespace

CommandHelp translate_help(const Arguments&) {
  TranslateSettings settings;
  return {"RUN is the folder of a run, whose last checkpoint is used, or of a checkpoint.",
          describe(settings_of(settings)), "",
          "orrery translate runs/latest --input=test.de --reference=test.en --beam=5"};
}

int translate(const Arguments& arguments) {
  TranslateSettings s;
  std::vector<std::string> words = read_arguments("translate", arguments, settings_of(s));
  const std::string run = take_run(s.checkpoint, words);
  check_usage(words.empty(), "translate: '", words.empty() ? "" : words[0],
              "' is not of the form --key=value; did you mean --input?");
  if (s.threads > 0) set_thread_count(static_cast<int>(s.threads));
  const Device device = parse_device(s.device);
  check_available(device);
  const LoadedRun trained = load_run("translate", run);
  const std::unique_ptr<models::Tokenizer> tokenizer = models::restore_tokenizer(trained.tokenizer);
  nn::move(*trained.model, device);
  auto& translator = models::model_as<models::TranslationModel>(
      *trained.model, "translate", "a translation model; train one with --model=translation-small");
  const std::vector<std::string> references = s.reference.empty() ? std::vector<std::string>() : lines_of(s.reference);
  const Sources sources = read_sources(s.input, *tokenizer, translator.context());
  check(s.reference.empty() || references.size() == sources.tokens.size(),
        "translate: the numbers of lines differ: ", sources.tokens.size(), " in the input, ", references.size(), " in ",
        s.reference, "; give one reference line per source line");
  std::vector<std::string> translations;
  {
    const models::HostMemoryLimit limit;  // an error instead of the system's kill
    Progress progress("translating");
    const auto edits = begin_edits("translate", s.edits, translator, models::Passes::decoding);
    note_edits(*edits);
    s.search.progress = [&](double fraction) { progress.fraction("translated", fraction); };
    translations = models::translate_to_text(translator, sources.tokens, *tokenizer, s.search);
    if (!sources.tokens.empty()) edits->check_applied();
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
  print_message(numbers);
  return code;
}

}  // namespace orrery::program
