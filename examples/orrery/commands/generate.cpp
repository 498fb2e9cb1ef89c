// orrery generate: continues a text with a trained model.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>

#include "engine/system/parallel.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/edits_argument.h"
#include "examples/orrery/commands/load_run.h"
#include "examples/orrery/commands/text_argument.h"
#include "examples/orrery/commands/text_bounds.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/help_text.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/table.h"
#include "models/data/streaming_decoder.h"
#include "models/data/tokenizer.h"
#include "models/language_model.h"
#include "models/model.h"
#include "models/training/generation.h"

namespace orrery::program {
namespace {

struct GenerateSettings {
  std::string checkpoint, prompt, start, edits, device = "cpu";
  models::SamplingSettings sampling;
  TextBounds bounds;
  int64_t samples = 1, threads = 0;

  template <class V>
  void visit(V& v) {
    v("checkpoint|out_dir", checkpoint, "another way to give RUN: the folder of a run or of one checkpoint");
    v("prompt", prompt,
      "text to continue, -: standard input; if not given, the token that begins a text, or a line break");
    v("start", start, "nanoGPT's form of prompt: a text, or FILE:PATH for the text of a file or pipe");
    v("tokens|max_new_tokens", sampling.tokens, "number of tokens to generate", between(0, 1e9));
    v("temperature", sampling.temperature,
      "sampling temperature; 0: always the most likely token; 1: the model's probabilities", zero_or(tiny, 1e6));
    v("top_k", sampling.top_k, "sample from the k most likely tokens only; 0: from all", between(0, 1e9));
    v("top_p", sampling.top_p,
      "sample from the fewest most likely tokens whose probabilities add up to this; 1: from all", above(0, 1));
    v("seed", sampling.seed, "random seed of the sampling; each further sample uses the next seed",
      between(-models::max_seed, models::max_seed));
    v("keep", sampling.keep, "when the context is full, keep this many of the latest tokens; 0: half of the context",
      between(0, 16777216));
    v("samples|num_samples", samples, "number of texts to generate", between(1, 1e6));
    bounds.visit(v);
    v("edits", edits, edits_help);
    v("threads", threads, "cores to use; 0: OMP_NUM_THREADS, else all", between(0, 1024));
    v("device", device, "cpu or cuda", one_of({"cpu", "cuda"}));
  }
};

// nanoGPT's settings that have no equivalent here.
constexpr ForeignKey nanogpt_sample_keys[] = {
    {"init_from", "give the model as in orrery generate RUN; `orrery import` converts GPT-2's weights to a run"},
    {"dtype", "a model computes in the dtype of its checkpoint; leave it out"},
    {"compile", "there is nothing to compile; leave it out"},
};

std::string prompt_of(const GenerateSettings& s) {
  if (s.start.empty()) return text_or_input(s.prompt);
  check_usage(s.prompt.empty(), "generate: --prompt and --start both give a text to continue; use one");
  return text_argument(s.start);
}

// Number of generated tokens, and time for the prompt and for generated tokens. The first token's
// time counts for the prompt. Processing of tokens, such as printing, is excluded.
class Speed {
 public:
  void begin() { last_ = Clock::now(), first_ = true; }
  void token(int64_t prompt) {
    const double seconds = std::chrono::duration<double>(Clock::now() - last_).count();
    (first_ ? prompt_time_ : later_time_) += seconds;
    (first_ ? prompt_ : later_) += first_ ? prompt : 1;
    ++generated_, first_ = false;
  }
  void resume() { last_ = Clock::now(); }
  // `requested`: tokens of all texts, of which end tokens may leave some out.
  std::string summary(int64_t requested) const {
    const auto phase = [](const char* what, int64_t tokens, double seconds) {
      if (tokens == 0) return std::string();
      return text("; ", what, ": ", pluralize(tokens, "token"), " in ", fixed(seconds, 2), " s, ",
                  with_commas(std::llround(static_cast<double>(tokens) / std::max(seconds, 1e-9))), " tokens/s");
    };
    const bool ended = generated_ < requested;
    return text("generated ", pluralize(generated_, "token"),
                ended ? text(" of ", with_commas(requested), ", up to an end token") : "",
                phase("prompt", prompt_, prompt_time_), phase("after each first token", later_, later_time_));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_;
  bool first_ = true;
  int64_t generated_ = 0, prompt_ = 0, later_ = 0;  // tokens
  double prompt_time_ = 0, later_time_ = 0;
};

}  // namespace

CommandHelp generate_help(const Arguments&) {
  GenerateSettings settings;
  return {
      "RUN is the folder of a run, whose last checkpoint is used, or of a checkpoint.  Settings may also have the "
      "names of nanoGPT's sample.py.",
      describe(settings_of(settings), nanogpt_sample_keys), "",
      "orrery generate runs/latest --prompt=\"To be\" --tokens=300 --top_k=20"};
}

int generate(const Arguments& arguments) {
  GenerateSettings s;
  std::vector<std::string> words = read_arguments("generate", arguments, settings_of(s), nanogpt_sample_keys);
  const std::string run = take_run(s.checkpoint, words);
  check_usage(words.empty(), "generate: '", words.empty() ? "" : words[0],
              "' is not of the form --key=value; did you mean --prompt?");
  if (s.threads > 0) set_thread_count(static_cast<int>(s.threads));
  const Device device = parse_device(s.device);
  check_available(device);
  const std::string prompt = prompt_of(s);
  LoadedRun trained = load_run("generate", run);
  apply_bounds("generate", s.bounds, trained);
  nn::move(*trained.model, device);
  auto& lm = models::model_as<models::LanguageModel>(*trained.model, "generate", "a language model; give a run of one");
  const std::unique_ptr<models::Tokenizer> tokenizer = models::restore_tokenizer(trained.tokenizer);
  const std::vector<int32_t> tokens =
      prompt.empty() ? models::beginning_of_text(*tokenizer) : models::encode_text(*tokenizer, prompt);
  s.sampling = sampling_with(lm, *tokenizer, s.sampling);
  const int64_t prompt_length = std::min(static_cast<int64_t>(tokens.size()), lm.context());
  const auto edits = begin_edits("generate", s.edits, lm, models::Passes::decoding);
  const int64_t length = static_cast<int64_t>(tokens.size()) + s.sampling.tokens - 1;  // nothing reads the last one
  check_usage(length <= lm.context() || !edits->has_numbers_of_keys(), "generate: --edits=", s.edits,
              " numbers keys, which are numbered anew when the context is full; the model reads up to ", length,
              " tokens, the context is ", lm.context(), ": give fewer --tokens, or a shorter prompt");
  note_edits(*edits);
  Speed speed;
  for (int64_t i = 0; i < s.samples; ++i) {
    if (i > 0) std::cout << "\n---------------\n";
    std::cout << for_output(prompt) << std::flush;
    models::StreamingDecoder written(*tokenizer, tokens);
    speed.begin();
    models::generate(lm, tokens, s.sampling, [&](int32_t token) {
      speed.token(prompt_length);
      std::cout << for_output(written.add(token)) << std::flush;
      speed.resume();
    });
    std::cout << for_output(written.rest());
    ++s.sampling.seed;
  }
  std::cout << std::endl;
  if (s.sampling.tokens > 0) edits->check_applied();
  if (s.sampling.tokens > 0)
    print_message(broken_line(speed.summary(s.samples * s.sampling.tokens), STDERR_FILENO));
  return 0;
}

}  // namespace orrery::program
