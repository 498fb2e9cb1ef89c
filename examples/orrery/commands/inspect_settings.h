// The settings of `orrery inspect`, and what its analyses return.
#pragma once

#include <string>
#include <vector>

#include "examples/orrery/commands/edits_argument.h"
#include "examples/orrery/commands/example_argument.h"
#include "examples/orrery/commands/inspect_output.h"
#include "examples/orrery/commands/text_bounds.h"
#include "examples/orrery/page/source_files.h"
#include "examples/orrery/terminal/json_output.h"

namespace orrery::program {

inline const std::string default_of_many = "heads, logit_lens, ablation";  // of many examples

struct InspectSettings {
  std::string analyses, hooks, edits, out, html, source_url, patch_from, corpus, checkpoints = "last";
  ExampleArgument example;
  models::AnalysisSettings analysis;
  TextBegin begin;
  int64_t examples = 0, threads = 0;
  bool json = false;
  bool is_one() const { return examples == 0 && checkpoints == "last"; }  // one example at one checkpoint

  template <class V>
  void visit(V& v) {
    example.visit(v);
    v("examples", examples,
      "number of held-out examples, evenly spread, over which the metrics of " + default_of_many +
          " or other analyses are summarized: mean, deviation, interval, level of chance; 0: one example",
      between(0, 1e6));
    v("checkpoints", checkpoints,
      "all: these metrics at each checkpoint that the run keeps, by step; last: at the last one, or at RUN if it is a "
      "checkpoint",
      one_of({"last", "all"}));
    v("analysis|look", analyses,
      "analyses (below), comma-separated, or all; if not given, " + default_analyses +
          ", as far as available, and for --html predictions and components");
    v("layer", analysis.layer, "attention or feed-forward layer, in forward order, from 0; -1: all", between(-1, 1e6));
    v("head", analysis.head, "head of an attention, from 0; -1: all", between(-1, 1e6));
    v("slot|neuron", analysis.slot,
      "neuron (hidden unit of a feed-forward) or persistent slot (learned key and value), from 0; -1: those with the "
      "largest values",
      between(-1, 1e9));
    v("position|place", analysis.position,
      "position (token or patch) for logit_lens, patching, answers and attention_score, from 0; -1: that of the "
      "highest loss, the largest difference, all, or the last",
      between(-1, 1e9));
    v("key", analysis.key,
      "key, or a slot behind the keys, for attention_score, from 0; -1: that of the largest weight", between(-1, 1e9));
    v("answer", analysis.answer,
      "token or class by name, for logit_attribution, gradient_times_input and patching; if not given, the target");
    v("against", analysis.against,
      "token or class against which the answer is set; if not given, the most likely other one");
    v("top", analysis.top, "entries printed per list", between(1, 1e6));
    v("patch_from|other", patch_from,
      "second example (text, image or source) to patch values from, for ablation, head_patching and --edits");
    v("corpus", corpus,
      "text as for train (16 MiB of a plain file), pipe or -, searched for top activations; default: the example");
    v("seed", analysis.seed, "random seed of examples that an analysis generates", between(0, models::max_seed));
    begin.visit(v);
    v("edits", edits, text(edits_help, "; also =other and +2(other-this), with --patch_from"));
    v("hooks", hooks,
      "values to capture, comma-separated, such as blocks.*.attention.weights; TransformerLens's names work too");
    v("out", out,
      "FILE.safetensors, or a folder for .npy files, their names (.json) and metrics.csv: all values; FILE.csv: the "
      "metrics only");
    v("html|page", html, "FILE.html: a page with plots of the analyses");
    v("source_url", source_url, SourceLinks::help);
    v("json", json, json_help);
    v("threads", threads, "cores to use; 0: OMP_NUM_THREADS, else all", between(0, 1024));
  }
};

// The views and arrays that the command prints and writes.
struct InspectResults {
  std::vector<models::View> views;
  std::vector<NamedArray> arrays;  // values of hooks, or of each example
  models::Json origin;  // with the edits, if there are any
};

}  // namespace orrery::program
