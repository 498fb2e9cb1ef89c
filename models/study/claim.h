// A claim that `orrery study` tests, as a TOML file:
//
//   source = "A Study on ReLU and Softmax in Transformer, arXiv:2302.06461"
//   sentence = "A ReLU memory beats a softmax memory, and the more the more slots there are."
//   kind = "trained"                           # or derived, or timed
//   reported = "BLEU 34.22 against 33.08"      # optional: the result that the source reports; formerly `figure`
//   smaller = "a language model of 4 layers"   # optional: how the test is smaller than the source's
//   main = true                                # optional: a main claim of the source, listed first
//   config = "examples/configs/quickstart.toml"    # settings common to all runs: a file, [base], or both; its path is
//                                              # relative to the current folder, the claim's folder or one above that
//   seeds = [1, 2, 3]                          # used by every variant: differences are computed seed by seed
//   learning_rates = [3e-3, 1e-2]              # optional: each variant uses the rate with the lowest validation loss
//                                              # at an extra seed and the middle swept value; results at the best
//                                              # shared rate are reported too
//   metric = "doubling(validation_loss)"       # metric_expression.h
//   refuted_if = "relu > softmax - 0.01"       # one or a list; the claim holds if none of them is true
//   [base]                                     # settings as in any file of settings
//   layers = 2
//   [sweep]                                    # optional: lists of equal length, changed together
//   feed_forward.slots = [32, 256, 2048]       # the first key gives the swept value; no variant may set such a key
//   [variants.relu]
//   feed_forward = "memory(relu)"
//   [variants.softmax]
//   feed_forward = "memory(softmax)"
//   [variants.relu_without_a_head]             # edits of the trained model (models/inspection/base/edits.h); variants
//   feed_forward = "memory(relu)"              # that differ by edits alone share their runs. Such a variant has the
//   edits = "blocks.0.attention.3*0"           # metrics of a validation, of analyses and few_shot, not those of steps
//
//   [example]                                  # input of analyses of the trained models (metric heads/induction/*)
//   text = "First Citizen:"                    # or image, or source and target, as in orrery inspect
//
//   [few_shot]                                 # data of the metrics few_shot/NAME of the trained models, NAME the last
//   data = "images/mnist, images/flowers"      # folder of a set: the mean accuracy of linear probes over seeds, as in
//   shots = 10                                 # orrery evaluate --few_shot; optional, as seeds = 3, features, ...
//
// refuted_if: VARIANT > or < OTHER [+ or - NUMBER [%]],  VARIANT != OTHER +- NUMBER [%].  OTHER is
// a variant or a number: an expression without logged metrics, as in "naive != ratio(0.25, swept)
// +- 5 %". A metric not over the sweep is compared at each swept value. A condition may name its
// own metric before a colon: "span_mean: adaptive > 64".
//
// trained: complete runs. derived: metrics of the first step, before training; seeds are samples.
// timed: in each of `rounds` every variant runs `round_steps` steps in turn. A sample is a round's
// median (ms). Differences are fractions of the other's time unless the metric is over the sweep.
#pragma once

#include <string>
#include <vector>

#include "models/inspection/base/example.h"
#include "models/study/combinations.h"
#include "models/study/metric_expression.h"
#include "models/study/verdict.h"

namespace orrery::models {

struct Variant {
  std::string name;
  Assignments settings;
  std::string edits = {}, location = {};  // of its table
};

struct Comparison {
  std::string text;         // as written in the file
  std::string metric_text;  // its own metric expression as text; empty: the claim's
  size_t metric = 0;        // index into the claim's metrics
  std::string left, right;
  bool of_variants = true;  // right is a variant
  MetricExpression number;  // otherwise `left` is compared with this
  RefutedWhen refuted = RefutedWhen::above;
  double bound = 0;          // limit of left - right; if `is_relative`, of left / right - 1
  bool is_relative = false;  // the bound is a fraction of `right`
};

struct SweptKey {
  std::string key;
  std::vector<std::string> values;
};

// Labelled data that linear probes on trained models are evaluated on.
struct FewShotInput {
  std::string data, features, text_column = "text", label_column = "label";
  int64_t shots = 10, seeds = 3;
  std::string location = {};  // of the table

  template <class V>
  void visit(V& v) {
    v("data", data, "sets of labelled data, comma-separated");
    v("shots", shots, "examples per class", between(1, 1e6));
    v("seeds", seeds, "number of seeds; each draws its own shots", between(1, 1000));
    v("features", features, "layer; if not given, the last one before the head");
    v("text_column", text_column, "column of texts");
    v("label_column", label_column, "column of labels");
  }
  std::vector<std::string> sets() const;
  static std::string name_of(const std::string& set);  // of its metric, few_shot/NAME
};
inline constexpr const char* few_shot_metric = "few_shot/";

struct Claim {
  enum class Kind { trained, derived, timed };
  Kind kind = Kind::trained;
  std::string path, source, sentence, config, reported, smaller;
  bool main = false;
  Assignments base;
  std::vector<Variant> variants;
  std::vector<SweptKey> sweep;  // empty, or lists of equal length
  std::vector<int64_t> seeds;   // if timed, one seed
  std::vector<double> learning_rates;
  std::vector<MetricExpression> metrics;  // the claim's, then the comparisons' own
  std::vector<Comparison> refuted_if;
  std::vector<std::string> metric_locations;  // location of each metric: "claim.toml:5"
  ExampleSettings example;                    // input of the analyses
  std::string example_location;
  FewShotInput few_shot;  // data of the metrics few_shot/NAME
  int64_t rounds = 0, round_steps = 0;
  bool smoke = false;  // shortened by for_smoke

  // swept_text and swept_number return value i of the first swept key ("" and 0 without a sweep).
  size_t swept_values() const { return sweep.empty() ? 1 : sweep[0].values.size(); }
  size_t middle_value() const { return swept_values() / 2; }  // where learning rates are chosen
  std::string swept_text(size_t i) const;  // as written in the file
  double swept_number(size_t i) const;  // for text that is not a number, i + 1
  // Returns true if the variant is measured: always for metric 0, else if its comparisons name it.
  bool is_measured(size_t metric, const std::string& variant) const;
  // Returns the analyses that the metrics name, each once: "heads" for heads/induction/*.
  std::vector<std::string> analyses() const;
  bool measures_few_shot() const;  // a metric is few_shot/NAME
};
std::string name(Claim::Kind kind);  // trained, derived, timed

// Returns the SHA-256 of a claim's parsed values: comments, the order of its lines and renamed
// settings and metrics do not matter (id_names.h).
std::string claim_hash(const std::string& path);
// Reads a claim. Errors name file and line, and state what is missing or contradictory.
Claim read_claim(const std::string& path);
// Returns the path of a file or folder that a claim names: relative to the current folder, else
// to the claim's folder or the nearest folder above it that contains it. Empty: not found.
std::string resolve_path(const std::string& claim, const std::string& path);

// Shortens a claim to test that everything runs, without a verdict: one seed (or round) and
// learning rate, two steps, the two variants that are compared first, the first two swept values.
Claim for_smoke(Claim claim);

// Returns the settings of a run; later ones override. `lr` 0: the settings' own learning rate.
Assignments settings_of_run(const Claim& claim, const Variant& variant, size_t swept, int64_t seed, double lr);

}  // namespace orrery::models
