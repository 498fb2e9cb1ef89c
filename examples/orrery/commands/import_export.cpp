// orrery import and orrery export: conversion of weights from and to other programs' formats.
#include <iostream>
#include <optional>

#include "engine/system/parallel.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/load_run.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/table.h"
#include "models/interop/base/weight_format.h"
#include "models/language_model.h"

namespace orrery::program {
namespace {

struct ImportSettings {
  std::string out, tokenizer, reference_logits;
  int64_t threads = 0;
  template <class V>
  void visit(V& v) {
    v("out", out, "folder of the new run");
    v("tokenizer", tokenizer, "file or folder of the tokenizer; if not given, the one in the imported folder");
    v("reference_logits|check", reference_logits,
      "safetensors file with tokens (B, T) or pixel_values (B, C, H, W), and the expected logits");
    v("threads", threads, "cores to use; 0: OMP_NUM_THREADS, else all", between(0, 1024));
  }
};
struct ExportSettings {
  std::string out, format;
  template <class V>
  void visit(V& v) {
    v("out", out, "new folder to write to");
    v("format", format, "format to write (below); if not given, the one that fits the model");
  }
};

std::string formats_text() {
  std::string all = "Formats:\n";
  for (const auto& [name, format] : models::weight_formats())
    all += "  " + name + ": " + format.description + (format.write ? "" : "; import only") + "\n";
  return all;
}

std::string only_argument(const char* command, const std::vector<std::string>& words, const char* what) {
  check_usage(words.size() == 1, command, ": ", words.size(), " paths are given; give ", what);
  return words[0];
}

}  // namespace

CommandHelp import_help(const Arguments&) {
  ImportSettings settings;
  return {"PATH is a folder or a file of another program.", describe(settings_of(settings)), formats_text(),
          "orrery import gpt2 --out=runs/gpt2"};
}

int import_weights(const Arguments& arguments) {
  ImportSettings s;
  const std::string path =
      only_argument("import", read_arguments("import", arguments, settings_of(s)), "the folder or file to import");
  check_usage(!s.out.empty(), "import: --out is missing; give the folder of the new run, as in --out=runs/imported");
  if (s.threads > 0) set_thread_count(static_cast<int>(s.threads));
  const auto convert = [&] { return models::import_model(path, s.out, s.tokenizer, s.reference_logits); };
  std::optional<Progress> progress(std::in_place, "importing " + path);
  const models::ImportReport report = as_content(convert);
  progress.reset();
  Table mapped({"target", "source", "conversion"}, "lll");
  for (const auto& line : report.mapped) mapped.add({line.target, line.sources, line.how});
  std::cout << mapped.print(0);
  for (const auto& [name, why] : report.unused)
    std::cout << "left out: " << for_terminal(name) << ": " << for_terminal(why) << '\n';
  for (const std::string& each : report.notes) note(each);
  std::cout << "format: " << report.format
            << (report.classes > 0 ? text("; classes: ", report.classes)
                                   : "; tokenizer: " + for_terminal(report.tokenizer))
            << '\n'
            << for_terminal(report.checkpoint) << ": " << with_commas(report.parameters) << " parameters in "
            << report.mapped.size() << " tensors, " << report.unused.size() << " left out\n";
  if (report.largest_difference)
    std::cout << "largest difference of the logits: " << scientific(*report.largest_difference) << '\n';
  std::cout << std::flush;
  return 0;
}

CommandHelp export_help(const Arguments&) {
  ExportSettings settings;
  return {"RUN is the folder of a run or of a checkpoint.", describe(settings_of(settings)), formats_text(),
          "orrery export runs/mine --out=mine-for-transformers"};
}

int export_weights(const Arguments& arguments) {
  ExportSettings s;
  const std::string run = only_argument("export", read_arguments("export", arguments, settings_of(s)),
                                        "the folder of a run or of a checkpoint");
  check_usage(!s.out.empty(), "export: --out is missing; give a new folder, as in --out=exported");
  const LoadedRun trained = load_run("export", run);
  std::optional<Progress> progress(std::in_place, "exporting " + run);
  const std::string format =
      models::export_model({trained.settings, *trained.model, trained.tokenizer}, s.out, s.format);
  progress.reset();
  const bool lm = dynamic_cast<const models::LanguageModel*>(trained.model.get()) != nullptr;
  const std::string tokenizer = lm ? models::restore_tokenizer(trained.tokenizer)->name() : "";
  if (tokenizer == "token_ids") note("the tokens of this run are numbers, so no tokenizer file is written");
  if (tokenizer == "sentence_piece")
    note("after a token such as </s> within a text, transformers inserts a space and orrery does not");
  std::cout << for_terminal(s.out) << ": " << with_commas(nn::count_parameters(*trained.model)) << " parameters as "
            << format << std::endl;
  return 0;
}

}  // namespace orrery::program
