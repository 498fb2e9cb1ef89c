// orrery prepare: tokenizes a text once, for many runs.
#include <iostream>

#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/table.h"
#include "models/data/prepared.h"
#include "models/study/run_contents.h"

namespace orrery::program {
namespace {

struct PrepareSettings {
  models::Preparation to;
  int64_t vocabulary = 0;

  template <class V>
  void visit(V& v) {
    v("input", to.input, "text file, or folder of text files (UTF-8, JSONL, CSV, TSV)");
    v("out", to.out, "folder for train.bin, val.bin and tokens.json");
    v("tokenizer", to.tokenizer,
      "character, byte, byte_pair(vocabulary=8000), sentence_piece(vocabulary=8000), or a path (GPT-2)");
    v("vocabulary", vocabulary, "N: train byte pairs on the input, as with --tokenizer='byte_pair(vocabulary=N)'",
      zero_or(257, 1e6));
    v("validation_input", to.validation_input, "text for validation; if not given, the end of the input");
    v("validation_fraction", to.validation_fraction, "fraction of the tokens, at the end, for validation",
      between(0, 0.9));
    v("text_field", to.text_field,
      "field of JSONL, or column of CSV and TSV, with the text; empty: read such files as plain text");
  }
};

}  // namespace

CommandHelp prepare_help(const Arguments&) {
  PrepareSettings settings;
  return {"", describe(settings_of(settings)), "",
          "orrery prepare --input=books --out=books-gpt2 --tokenizer=gpt2\norrery train --data=books-gpt2"};
}

int prepare(const Arguments& arguments) {
  PrepareSettings s;
  const std::vector<std::string> words = read_arguments("prepare", arguments, settings_of(s));
  check_usage(words.empty(), "prepare: '", words.empty() ? "" : words[0],
              "' is not of the form --key=value; did you mean --input?");
  if (s.vocabulary > 0) {
    check_usage(s.to.tokenizer == models::Preparation().tokenizer, "prepare: --vocabulary=", s.vocabulary,
                " trains byte pairs, but --tokenizer=", s.to.tokenizer,
                " names another tokenizer; leave one of them out");
    s.to.tokenizer = text("byte_pair(vocabulary=", s.vocabulary, ")");
  }
  if (!s.to.out.empty()) models::check_no_run("prepare", without_last_slashes(s.to.out));
  models::Prepared prepared;
  {
    Progress progress("preparing " + s.to.input);
    prepared =
        models::prepare(s.to, [&](const std::string& done, double fraction) { progress.fraction(done, fraction); });
  }
  for (const std::string& each : prepared.notes) note(each);
  std::cout << with_commas(prepared.train) << " training tokens, " << with_commas(prepared.validation)
            << " for validation; vocabulary size " << with_commas(prepared.vocabulary) << "\nfiles:\n  "
            << for_terminal(s.to.out) << "/train.bin\n";
  if (prepared.validation > 0) std::cout << "  " << for_terminal(s.to.out) << "/val.bin\n";
  std::cout << "  " << for_terminal(s.to.out) << "/tokens.json" << std::endl;
  return 0;
}

}  // namespace orrery::program
