// GPT-2 in Hugging Face's format: GPT2LMHeadModel. Its linear layers are Conv1D with (inputs,
// outputs) matrices; q, k and v are one matrix, as here. All linear layers and normalizations have
// biases; missing ones are exported as zeros. Dropout is a training setting and stays 0. nanoGPT
// has these names, Linear matrices and exact GELU. Its folders need model.safetensors and
// model_args as config.json: n_layer, n_head, n_embd, block_size, vocab_size, bias.
#include <algorithm>

#include "models/interop/base/hugging_face.h"

namespace orrery::models {
namespace {

const std::string format = "gpt2";

std::vector<TensorMapping> mappings_of(const GptSettings& s, int64_t d_ff, const std::string& prefix,
                                       const std::vector<int>& axes) {
  std::vector<TensorMapping> all = {{.target = "token_embedding.weight", .sources = {prefix + "wte.weight"}},
                                    {.target = "position_embedding.weight", .sources = {prefix + "wpe.weight"}}};
  const auto norm = [&](const std::string& target, const std::string& source) {
    all.push_back({.target = target + ".weight", .sources = {source + ".weight"}});
    all.push_back({.target = target + ".bias", .sources = {source + ".bias"}, .zeros = Shape{s.width}});
  };
  const auto linear = [&](const std::string& target, const std::string& source, int64_t outputs) {
    all.push_back({.target = target + ".weight", .sources = {source + ".weight"}, .axes = axes});
    all.push_back({.target = target + ".bias", .sources = {source + ".bias"}, .zeros = Shape{outputs}});
  };
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string target = text("blocks.", i, "."), source = text(prefix, "h.", i, ".");
    norm(target + "attention_norm", source + "ln_1");
    linear(target + "attention.query_key_value", source + "attn.c_attn", 3 * s.width);
    linear(target + "attention.output", source + "attn.c_proj", s.width);
    norm(target + "feed_forward_norm", source + "ln_2");
    linear(target + "feed_forward.input", source + "mlp.c_fc", d_ff);
    linear(target + "feed_forward.output", source + "mlp.c_proj", s.width);
  }
  norm("norm", prefix + "ln_f");
  if (!s.tied_head) all.push_back({.target = "head.weight", .sources = {"lm_head.weight"}});
  return all;
}

// Returns `common`, transformers' generic name, if config.json has it; it overrides GPT-2's `own`.
std::string effective_key(const HuggingFaceConfig& config, const char* common, const char* own, ImportedModel& to) {
  if (!config.has(common)) return own;
  if (config.has(own) && *config.find(own) != *config.find(common))
    to.notes.push_back(text(config.path(), ": '", common, "': ", shortened(*config.find(common)),
                            " is used instead of '", own, "': ", shortened(*config.find(own)), ", as in transformers"));
  return common;
}

GptSettings settings_of_config(const HuggingFaceConfig& config, ImportedModel& to) {
  config.must_be("scale_attn_weights", {true});
  config.must_be("scale_attn_by_inverse_layer_idx", {false});
  config.must_be("add_cross_attention", {false});
  config.must_be("quantization_config", {});
  GptSettings s;
  const auto read = [&](const char* target, const char* common, const char* own, int64_t otherwise) {
    config.read(s, target, effective_key(config, common, own, to), otherwise);
  };
  read("layers", "num_hidden_layers", "n_layer", 12), read("heads", "num_attention_heads", "n_head", 12);
  read("width", "hidden_size", "n_embd", 768), read("context", "max_position_embeddings", "n_positions", 1024);
  config.read(s, "vocabulary", "vocab_size", 50257), config.read(s, "d_ff", "n_inner", 0);
  const std::string epsilon = print_number(config.positive("layer_norm_epsilon", 1e-5));
  s.normalization = parse_spec("layer(epsilon=" + epsilon + ")");
  s.feed_forward = parse_spec("dense(" + config.activation("activation_function", "gelu_new") + ")");
  s.bias = true;
  return s;
}

// Lists tensors that are not weights, and the head if it is the embedding.
void set_ignored(const GptSettings& s, const std::string& prefix, ImportedModel& from) {
  for (int64_t i = 0; i < s.layers; ++i)
    for (const char* mask : {"attn.bias", "attn.masked_bias"})
      from.ignored[text(prefix, "h.", i, ".", mask)] = "a mask, not a weight";
  from.ignored["lm_head.weight"] = "a copy of the embedding";
}

bool reads(const std::string& path) { return has_model_type(path, "gpt2"); }

ImportedModel read(const std::string& folder) {
  const HuggingFaceConfig config(folder);
  ImportedModel from;
  GptSettings s = settings_of_config(config, from);
  read_rest(folder, from);
  const bool bare = std::any_of(from.tensors.begin(), from.tensors.end(),
                                [](const StoredTensor& each) { return each.name == "wte.weight"; });
  const std::string prefix = bare ? "" : "transformer.";
  s.tied_head = has_tied_head(config, true, from, prefix + "wte.weight", "lm_head.weight", {s.vocabulary, s.width});
  from.settings = imported_settings(list_settings(s), Gpt::info.name, config.path());
  from.mappings = mappings_of(s, 0, prefix, transposed);
  set_ignored(s, prefix, from);
  return from;
}

bool reads_nanogpt(const std::string& path) {
  if (!has_config(path)) return false;
  const HuggingFaceConfig config(path);
  return !config.has("model_type") && config.has("n_head") && config.has("block_size");
}

ImportedModel read_nanogpt(const std::string& folder) {
  const HuggingFaceConfig config(folder);
  GptSettings s;
  config.read(s, "layers", "n_layer"), config.read(s, "heads", "n_head");
  config.read(s, "width", "n_embd"), config.read(s, "context", "block_size");
  config.read(s, "vocabulary", "vocab_size");
  s.bias = s.normalization_bias = config.flag("bias", true);
  s.normalization = parse_spec("layer(epsilon=1e-5)"), s.feed_forward = parse_spec("dense(gelu)");
  ImportedModel from;
  read_rest(folder, from);
  constexpr std::string_view of_compile = "_orig_mod.";
  for (StoredTensor& each : from.tensors)
    if (each.name.starts_with(of_compile)) each.name.erase(0, of_compile.size());
  s.tied_head = has_tied_head(config, true, from, "transformer.wte.weight", "lm_head.weight", {s.vocabulary, s.width});
  from.settings = imported_settings(list_settings(s), Gpt::info.name, config.path());
  from.mappings = mappings_of(s, 0, "transformer.", {});
  set_ignored(s, "transformer.", from);
  return from;
}

void write(const ExportedModel& what, const std::string& folder) {
  const TrainSettings& run = what.settings;
  const auto& s = run.model_settings.as<GptSettings>();
  check_plain_decoder(format, run);
  if (s.kv_heads != 0 && s.kv_heads != s.heads) refuse_setting(format, run, "kv_heads");
  if (s.head_size != 0 && s.head_size != s.width / s.heads) refuse_setting(format, run, "head_size");
  const Spec normalization = common_normalization(format, run, "layer");
  const Spec activation = activation_of_feed_forward(format, run, "dense");
  const int64_t d_ff = s.d_ff ? s.d_ff : 4 * s.width;
  Json config = {{"architectures", Json::array({"GPT2LMHeadModel"})},
                 {"model_type", "gpt2"},
                 {"n_layer", s.layers},
                 {"n_head", s.heads},
                 {"n_embd", s.width},
                 {"n_positions", s.context},
                 {"n_ctx", s.context},
                 {"n_inner", d_ff},
                 {"vocab_size", s.vocabulary},
                 {"activation_function", source_activation(format, activation, run)},
                 {"layer_norm_epsilon", epsilon_of(normalization)},
                 {"tie_word_embeddings", s.tied_head},
                 {"resid_pdrop", s.dropout},
                 {"embd_pdrop", s.dropout},
                 {"attn_pdrop", 0.0}};
  write_hugging_face(folder, config, source_tensors(mappings_of(s, d_ff, "transformer.", transposed), what.model),
                     what.tokenizer);
}

REGISTER_WEIGHT_FORMAT(gpt2, {.name = format,
                              .description = "GPT-2 folders of Hugging Face",
                              .reads = reads,
                              .read = read,
                              .model = "gpt",
                              .position = "learned",
                              .write = write});
REGISTER_WEIGHT_FORMAT(nanogpt, {.name = "nanogpt",
                                 .description = "nanoGPT weights as model.safetensors, model_args as config.json",
                                 .reads = reads_nanogpt,
                                 .read = read_nanogpt});

}  // namespace
}  // namespace orrery::models
