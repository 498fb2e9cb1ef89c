// orrery generate: a trained model continues a text.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "engine/base/parallel.h"
#include "examples/orrery/arguments.h"
#include "examples/orrery/commands.h"
#include "models/data/tokenizer.h"
#include "models/training/checkpoint.h"
#include "models/training/generation.h"
#include "models/training/memory_plan.h"
#include "models/training/settings.h"

namespace orrery::program {
namespace {

struct GenerateSettings {
  std::string checkpoint, prompt, start, device = "cpu";
  models::SamplingSettings sampling;
  int64_t samples = 1, threads = 0;

  template <class V>
  void visit(V& v) {
    v("checkpoint", checkpoint, "folder of a run (its last checkpoint) or of one checkpoint");
    v("prompt", prompt, "text to continue; none: a line break");
    v("start", start, "FILE:path, a file with the text to continue");
    v("tokens", sampling.tokens, "tokens to add", between(0, 1e9));
    v("temperature", sampling.temperature, "0: always the most likely token; 1: as the model says", zero_or(tiny, 1e6));
    v("top_k", sampling.top_k, "draw from the k most likely tokens only; 0: from all", between(0, 1e9));
    v("seed", sampling.seed, "same seed, same text; each further sample takes the next seed",
      between(-models::largest_seed, models::largest_seed));
    v("keep", sampling.keep, "tokens still seen once the context was full; 0: half of the context",
      between(0, 16777216));
    v("samples", samples, "texts to write", between(1, 1e6));
    v("threads", threads, "cores to use; 0: all", between(0, 1024));
    v("device", device, "cpu or cuda", one_of({"cpu", "cuda"}));
  }
};

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  check(in.good() && !std::filesystem::is_directory(path), "generate: cannot read ", path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string prompt_of(const GenerateSettings& s) {
  if (s.start.empty()) return s.prompt;
  check(s.prompt.empty(), "generate: --prompt and --start both give a text to continue; use one");
  const std::string scheme = "FILE:";
  return s.start.starts_with(scheme) ? read_text(s.start.substr(scheme.size())) : s.start;
}

std::string find_checkpoint(const std::string& folder) {
  check(!folder.empty(),
        "generate: no model to write with; give the folder of a run with --checkpoint=DIR, for instance "
        "--checkpoint=runs/latest");
  check(std::filesystem::is_directory(folder), "generate: there is no folder ", folder,
        "; orrery train --out=DIR makes one");
  if (std::filesystem::exists(folder + "/state.json")) return folder;
  const std::string latest = models::latest_checkpoint(folder);
  check(!latest.empty(), "generate: ", folder,
        " holds no checkpoint; give the folder of a run or of one of its checkpoints");
  return latest;
}

// A state.json can describe any model; one with more parameters than the weights beside it is not made.
void check_described(const models::GptSettings& described, const std::string& weights) {
  std::error_code problem;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(weights, problem));
  check(!problem, "generate: ", weights, ": ", problem.message());
  check(models::count_parameters(described, bytes / 2).has_value(), "generate: ", weights, " has ", bytes,
        " bytes, too few for the model that state.json describes (layers ", described.layers, ", width ",
        described.width, ", vocabulary ", described.vocabulary, "); the checkpoint is damaged");
}

}  // namespace

std::string generate_help() {
  GenerateSettings settings;
  return "Arguments are --key=value:\n" + describe(settings_of(settings)) +
         "\nExample: orrery generate --checkpoint=runs/latest --prompt=\"To be\" --tokens=300 --top_k=20";
}

int generate(const Arguments& arguments) {
  GenerateSettings s;
  const std::vector<std::string> words = read_arguments("generate", arguments, settings_of(s));
  check(words.empty(), "generate: '", words.empty() ? "" : words[0],
        "' is not of the form --key=value; did you mean --prompt?");
  if (s.threads > 0) set_thread_count(static_cast<int>(s.threads));
  const Device device = parse_device(s.device);
  check_available(device);
  const std::string checkpoint = find_checkpoint(s.checkpoint), prompt = prompt_of(s);
  const models::CheckpointState state = models::read_state(checkpoint);
  const auto tokenizer = models::restore_tokenizer(state.tokenizer);
  const models::GptSettings described = models::make_settings(state.settings).gpt;
  check_described(described, checkpoint + "/weights.safetensors");
  models::Gpt model(described);
  models::load_weights(checkpoint, model);
  nn::move(model, device);
  const std::vector<int32_t> tokens = tokenizer->encode(prompt.empty() ? "\n" : prompt);
  for (int64_t i = 0; i < s.samples; ++i) {
    if (i > 0) std::cout << "\n---------------\n";
    std::cout << prompt << std::flush;
    models::generate(model, tokens, s.sampling,
                     [&](int32_t token) { std::cout << tokenizer->decode(std::vector<int32_t>{token}) << std::flush; });
    ++s.sampling.seed;
  }
  std::cout << std::endl;
  return 0;
}

}  // namespace orrery::program
