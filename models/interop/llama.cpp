// Llama in Hugging Face's format, LlamaForCausalLM. Channels i and i + size / 2 of a head are
// rotated together (half_split here). The base is rope_parameters.rope_theta (transformers 5) or
// rope_theta (older). Scaled angles (rope_type, or type in rope_scaling) are rejected.
#include <algorithm>

#include "models/interop/base/hugging_face.h"
#include "nn/positions/base/position.h"

namespace orrery::models {
namespace {

const std::string format = "llama";

std::vector<TensorMapping> mappings_of(const GptSettings& s, int64_t d_ff, const std::string& prefix,
                                       bool interleaved) {
  const int64_t size = s.head_size ? s.head_size : s.width / s.heads, keys = (s.kv_heads ? s.kv_heads : s.heads) * size;
  const bool attention_bias = s.attention_bias == "yes" || (s.attention_bias == "same" && s.bias),
             feed_forward_bias = s.feed_forward_bias == "yes" || (s.feed_forward_bias == "same" && s.bias);
  std::vector<TensorMapping> all = {{.target = "token_embedding.weight", .sources = {prefix + "embed_tokens.weight"}}};
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string target = text("blocks.", i, "."), source = text(prefix, "layers.", i, ".");
    const auto add = [&](const std::string& layer, const std::vector<std::string>& parts, std::vector<int64_t> rows,
                         bool bias, int64_t interleaved_head) {
      for (const char* end : {".weight", ".bias"}) {
        if (std::string_view(end) == ".bias" && !bias) continue;
        TensorMapping mapping{.target = target + layer + end, .rows = rows, .interleaved_head = interleaved_head};
        for (const std::string& part : parts) mapping.sources.push_back(source + part + end);
        all.push_back(std::move(mapping));
      }
    };
    add("attention_norm", {"input_layernorm"}, {}, false, 0);
    add("attention.query_key_value", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
        {s.heads * size, keys, keys}, attention_bias, interleaved ? size : 0);
    add("attention.output", {"self_attn.o_proj"}, {}, attention_bias, 0);
    add("feed_forward_norm", {"post_attention_layernorm"}, {}, false, 0);
    add("feed_forward.input", {"mlp.gate_proj", "mlp.up_proj"}, {d_ff, d_ff}, feed_forward_bias, 0);
    add("feed_forward.output", {"mlp.down_proj"}, {}, feed_forward_bias, 0);
  }
  all.push_back({.target = "norm.weight", .sources = {prefix + "norm.weight"}});
  if (!s.tied_head) all.push_back({.target = "head.weight", .sources = {"lm_head.weight"}});
  return all;
}

// Returns the base of the angles as transformers 5 finds it: rope_scaling overrides
// rope_parameters, and an object without rope_theta uses the top-level one.
double base_of(const HuggingFaceConfig& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* const rope = config.find(key);
    if (!rope) continue;
    check_form(rope->is_object(), *rope, key, config.path(), "an object {...}");
    if (rope->empty()) continue;
    for (const char* type : {"rope_type", "type"})
      check(!rope->contains(type) || (*rope)[type].is_null() || (*rope)[type] == "default", config.path(), ": '", key,
            ".", type, "': ", json_text(rope->value(type, Json())),
            " is not supported; it must be \"default\" (rotary positions without scaling)");
    check(!rope->contains("partial_rotary_factor") || (*rope)["partial_rotary_factor"] == 1, config.path(), ": '", key,
          ".partial_rotary_factor': ", json_text(rope->value("partial_rotary_factor", Json())),
          " is not supported; it must be 1");
    if (rope->contains("rope_theta")) return number_member(*rope, "rope_theta", config.path());
    break;
  }
  return config.positive("rope_theta", 10000);
}

GptSettings settings_of_config(const HuggingFaceConfig& config) {
  config.must_be("quantization_config", {});
  config.must_be("partial_rotary_factor", {1, 1.0});
  GptSettings s;
  config.read(s, "layers", "num_hidden_layers", 32), config.read(s, "heads", "num_attention_heads", 32);
  config.read(s, "width", "hidden_size", 4096), config.read(s, "d_ff", "intermediate_size", 11008);
  config.read(s, "context", "max_position_embeddings", 2048), config.read(s, "vocabulary", "vocab_size", 32000);
  config.read(s, "kv_heads", "num_key_value_heads", 0), config.read(s, "head_size", "head_dim", 0);
  if (s.kv_heads == s.heads) s.kv_heads = 0;
  if (s.head_size * s.heads == s.width) s.head_size = 0;
  s.normalization = parse_spec("rms(epsilon=" + print_number(config.positive("rms_norm_eps", 1e-6)) + ")");
  s.feed_forward = parse_spec("gated(" + config.activation("hidden_act", "silu") + ")");
  s.position = parse_spec("rotary(base=" + print_number(base_of(config)) + ")");
  s.attention_bias = config.flag("attention_bias", false) ? "yes" : "no";
  s.feed_forward_bias = config.flag("mlp_bias", false) ? "yes" : "no";
  return s;
}

bool reads(const std::string& path) { return has_model_type(path, "llama"); }

ImportedModel read(const std::string& folder) {
  const HuggingFaceConfig config(folder);
  GptSettings s = settings_of_config(config);
  ImportedModel from;
  read_rest(folder, from);
  const bool bare = std::any_of(from.tensors.begin(), from.tensors.end(),
                                [](const StoredTensor& each) { return each.name == "embed_tokens.weight"; });
  const std::string prefix = bare ? "" : "model.", embedding = prefix + "embed_tokens.weight";
  s.tied_head = has_tied_head(config, false, from, embedding, "lm_head.weight", {s.vocabulary, s.width});
  from.settings = imported_settings(list_settings(s), Gpt::info.name, config.path());
  from.mappings = mappings_of(s, s.d_ff, prefix, false);
  from.ignored["lm_head.weight"] = "a copy of the embedding";
  from.ignored[prefix + "rotary_emb.inv_freq"] = "rotary angles, not weights";
  for (int64_t i = 0; i < s.layers; ++i)
    from.ignored[text(prefix, "layers.", i, ".self_attn.rotary_emb.inv_freq")] = "rotary angles, not weights";
  return from;
}

struct Rotary {  // the settings of nn/positions/rotary.cpp
  double base = 0;
  bool interleaved = false, whole = false;
};
Rotary rotary_of(const Spec& position) {
  Rotary rotary;
  for (const Spec::Item& item : nn::resolved(nn::positions(), position).items) {
    if (item.key == "base") rotary.base = parse_number("base", item.value.name);
    if (item.key == "pairs") rotary.interleaved = item.value.name == "interleaved";
    if (item.key == "partial_rotary_factor") rotary.whole = parse_number(item.key, item.value.name) == 1;
  }
  return rotary;
}

void write(const ExportedModel& what, const std::string& folder) {
  const TrainSettings& run = what.settings;
  const auto& s = run.model_settings.as<GptSettings>();
  check_plain_decoder(format, run);
  const Rotary rotary = rotary_of(s.position);
  if (!rotary.whole) refuse_setting(format, run, "position");
  const Spec normalization = common_normalization(format, run, "rms");
  const Spec activation = activation_of_feed_forward(format, run, "gated");
  const int64_t size = s.head_size ? s.head_size : s.width / s.heads;
  int64_t d_ff = 0;
  for (const nn::NamedParameter& p : nn::parameters_of(what.model))
    if (p.path == "blocks.0.feed_forward.output.weight") d_ff = p.parameter->value.size(1);
  const std::vector<TensorMapping> mappings = mappings_of(s, d_ff, "model.", rotary.interleaved);
  const auto has = [&](const std::string& target) {
    return std::any_of(mappings.begin(), mappings.end(),
                       [&](const TensorMapping& mapping) { return mapping.target == target; });
  };
  Json config = {{"architectures", Json::array({"LlamaForCausalLM"})},
                 {"model_type", "llama"},
                 {"num_hidden_layers", s.layers},
                 {"num_attention_heads", s.heads},
                 {"num_key_value_heads", s.kv_heads ? s.kv_heads : s.heads},
                 {"head_dim", size},
                 {"hidden_size", s.width},
                 {"intermediate_size", d_ff},
                 {"max_position_embeddings", s.context},
                 {"vocab_size", s.vocabulary},
                 {"hidden_act", source_activation(format, activation, run)},
                 {"rms_norm_eps", epsilon_of(normalization)},
                 {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", rotary.base}}},
                 {"rope_theta", rotary.base},
                 {"attention_bias", has("blocks.0.attention.output.bias")},
                 {"mlp_bias", has("blocks.0.feed_forward.output.bias")},
                 {"tie_word_embeddings", s.tied_head}};
  write_hugging_face(folder, config, source_tensors(mappings, what.model), what.tokenizer);
}

REGISTER_WEIGHT_FORMAT(llama, {.name = format,
                               .description = "Llama folders of Hugging Face",
                               .reads = reads,
                               .read = read,
                               .model = "gpt",
                               .position = "rotary",
                               .write = write});

}  // namespace
}  // namespace orrery::models
