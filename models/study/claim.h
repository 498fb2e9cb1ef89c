// A claim that a machine can judge, as a TOML file:
//
//   source = "A Study on ReLU and Softmax in Transformer, arXiv:2302.06461"
//   sentence = "A ReLU memory beats a softmax memory, and the more the more slots there are."
//   kind = "trained"                           # or derived, or timed
//   figure = "BLEU 34.22 against 33.08"        # optional: the source's own figure
//   smaller = "a language model of 4 layers"   # optional: how the test is smaller than the source's
//   main = true                                # optional: one of the source's main claims, listed first
//   config = "examples/configs/quickstart.toml"    # what all runs have in common: a file, [base], or both;
//                                              # its path as seen from here, from the claim or from a folder above it
//   seeds = [1, 2, 3]                          # the same for every variant: differences are taken seed by seed
//   learning_rates = [3e-3, 1e-2]              # optional: each variant takes the one with the lowest validation loss
//                                              # at a further seed and the middle swept value; what comes out at the
//                                              # one rate that is best for all is told as well
//   metric = "doubling(validation_loss)"       # metric.h
//   refuted_if = "relu > softmax - 0.01"       # one or a list; the claim holds if none of them is so
//   [base]                                     # settings as in any file of settings
//   layers = 2
//   [sweep]                                    # optional: lists of equal length, changed together
//   feed_forward.slots = [32, 256, 2048]       # the first key gives the swept value
//   [variants.relu]
//   feed_forward = "memory(relu)"
//   [variants.softmax]
//   feed_forward = "memory(softmax)"
//
//   [example]                                  # for figures of looks inside the trained models, as heads/induction/*
//   text = "First Citizen:"                    # what they read; or image, or source and target, as in orrery inspect
//
// refuted_if: VARIANT > or < OTHER [+ or - NUMBER [%]],  VARIANT != OTHER +- NUMBER [%].  OTHER is a variant, or a
// number, which is a metric without figures, as in "naive != ratio(0.25, swept) +- 5 %".  With a sweep and a metric
// that is not over it, it is asked at each swept value.  One that begins with a metric and a colon has that metric
// instead: "span_mean: adaptive > 64".
//
// trained: runs to their end.  derived: the figures of the first step, before anything was learned; seeds are samples.
// timed: `rounds` in which each variant does `round_steps` steps in turn; the sample is the median of a round, in
// milliseconds, and differences are shares of the other's time unless the metric is over a sweep.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/inspection/base/example.h"
#include "models/study/combinations.h"
#include "models/study/metric.h"
#include "models/study/verdict.h"

namespace orrery::models {

struct Variant {
  std::string name;
  Assignments settings;
};

struct Comparison {
  std::string text;     // as the file has it
  std::string measure;  // its own metric as text; empty: the claim's
  size_t metric = 0;    // which of the claim's metrics
  std::string left, right;
  bool of_variants = true;  // right is a variant
  Metric number;            // else this is held against
  Refuted refuted = Refuted::above;
  double bound = 0;    // of left - right, or of left / right - 1
  bool share = false;  // the latter
};

struct SweptKey {
  std::string key;
  std::vector<std::string> values;
};

struct Claim {
  enum class Kind { trained, derived, timed };
  Kind kind = Kind::trained;
  std::string path, source, sentence, config, figure, smaller;
  bool main = false;
  Assignments base;
  std::vector<Variant> variants;
  std::vector<SweptKey> sweep;  // none, or the same number of values each
  std::vector<int64_t> seeds;   // of a timed one the one seed
  std::vector<double> learning_rates;
  std::vector<Metric> metrics;  // the claim's, then those that comparisons have of their own
  std::vector<Comparison> refuted_if;
  std::vector<std::string> metric_places;  // of each where it stands: "claim.toml:5"
  ExampleSettings example;                 // of figures that looks tell
  std::string example_place;
  int64_t rounds = 0, round_steps = 0;
  bool smoke = false;  // for_smoke has shortened it

  // Of the first swept key as text and as a number (of text that is none, its place from 1); "" and 0 without a sweep.
  size_t swept_values() const { return sweep.empty() ? 1 : sweep[0].values.size(); }
  size_t middle_value() const { return swept_values() / 2; }  // where learning rates are chosen
  std::string swept_text(size_t i) const;
  double swept_number(size_t i) const;
  // Whether that metric is measured of the variant: the first one is of all, another one of those that it compares.
  bool concerns(size_t metric, const std::string& variant) const;
  // The looks whose figures its metrics name, each once: those that begin with "heads/", say.
  std::vector<std::string> looks() const;
};
std::string name(Claim::Kind kind);  // trained, derived, timed

// Errors name file and line; each says in a sentence what is missing or contradicts itself.
Claim read_claim(const std::string& path);
// A file or folder that a claim names: as seen from here, else from the claim's folder or the next one above it that
// has it; empty: there is none.
std::string found_near(const std::string& claim, const std::string& path);

// One seed (or round), one learning rate, the two variants and two values that are compared first, two steps: whether
// everything runs.  Nothing of it can be judged.
Claim for_smoke(Claim claim);

// The settings of a run, in the order in which they count.  `rate` 0: that of the settings.
Assignments settings_of_run(const Claim& claim, const Variant& variant, size_t swept, int64_t seed, double rate);

}  // namespace orrery::models
