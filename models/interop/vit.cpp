// Vision transformer in Hugging Face's format: ViTForImageClassification with a class token. Its
// patch embedding is a convolution (outputs, channels, height, width), here (outputs, height,
// width, channels). Its queries, keys and values have three matrices, here one. All its linear
// layers have biases (q, k, v unless qkv_bias is false); missing biases become zeros.
// processor_config.json ('image_processor'), else preprocessor_config.json, defines how pixels are
// scaled. Images of other sizes are resized unlike the source (models/data/decoded_image.h).
#include <algorithm>
#include <cmath>

#include "engine/system/files.h"
#include "models/architectures/vit.h"
#include "models/data/images.h"
#include "models/formats/gzip.h"
#include "models/interop/base/hugging_face.h"

namespace orrery::models {
namespace {

const std::string format = "vit";
constexpr const char *pixels_file = "preprocessor_config.json", *processor_file = "processor_config.json";
constexpr int64_t default_image_size = 224;  // ViTImageProcessor's default, pixels
constexpr std::string_view known_steps[] = {"do_resize", "do_rescale", "do_normalize", "do_center_crop",
                                            "do_convert_rgb"};

std::vector<TensorMapping> mappings_of(const VitSettings& s, int64_t d_ff) {
  std::vector<TensorMapping> all = {
      {.target = "class_token", .sources = {"vit.embeddings.cls_token"}},
      {.target = "position_embedding.weight", .sources = {"vit.embeddings.position_embeddings"}, .squeeze = true},
      {.target = "patch_embedding.weight",
       .sources = {"vit.embeddings.patch_embeddings.projection.weight"},
       .axes = {0, 2, 3, 1}},
      {.target = "patch_embedding.bias", .sources = {"vit.embeddings.patch_embeddings.projection.bias"}}};
  const auto add = [&](const std::string& target, const std::vector<std::string>& sources, int64_t outputs) {
    const auto with_suffix = [&](const char* end) {
      std::vector<std::string> names;
      for (const std::string& part : sources) names.push_back(part + end);
      return names;
    };
    const std::vector<int64_t> rows(sources.size(), outputs / static_cast<int64_t>(sources.size()));
    all.push_back({.target = target + ".weight", .sources = with_suffix(".weight"), .rows = rows});
    all.push_back({.target = target + ".bias",
                   .sources = with_suffix(".bias"),
                   .rows = rows,
                   .zeros = Shape{outputs},
                   .optional = sources.size() > 1});
  };
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string target = text("blocks.", i, "."), source = text("vit.encoder.layer.", i, "."),
                      heads = source + "attention.attention.";
    add(target + "attention_norm", {source + "layernorm_before"}, s.width);
    add(target + "attention.query_key_value", {heads + "query", heads + "key", heads + "value"}, 3 * s.width);
    add(target + "attention.output", {source + "attention.output.dense"}, s.width);
    add(target + "feed_forward_norm", {source + "layernorm_after"}, s.width);
    add(target + "feed_forward.input", {source + "intermediate.dense"}, d_ff);
    add(target + "feed_forward.output", {source + "output.dense"}, s.width);
  }
  add("norm", {"vit.layernorm"}, s.width);
  add("head", {"classifier"}, s.classes);
  return all;
}

// Removes stored biases of queries, keys and values that the source ignores: qkv_bias is false.
void leave_out_biases(const HuggingFaceConfig& config, ImportedModel& to) {
  if (config.flag("qkv_bias", true)) return;
  const auto left_out = std::erase_if(to.tensors, [](const StoredTensor& each) {
    return each.name.ends_with(".query.bias") || each.name.ends_with(".key.bias") || each.name.ends_with(".value.bias");
  });
  if (left_out > 0)
    to.notes.push_back(text(config.path(), ": 'qkv_bias' is false: stored biases of queries, keys and values are not ",
                            "used, as in transformers (tensors: ", left_out, ")"));
}

// Returns the names of the classes in the order of the logits.
std::vector<std::string> classes_of(const HuggingFaceConfig& config, int64_t count) {
  std::vector<std::string> classes;
  for (int64_t i = 0; i < count; ++i) classes.push_back(text("LABEL_", i));
  const Json* const names = config.find("id2label");
  if (!names) return classes;
  check_form(names->is_object(), *names, "id2label", config.path(), "an object that maps class numbers to names");
  check(static_cast<int64_t>(names->size()) == count, config.path(), ": 'id2label' has ", names->size(),
        " names, but 'classifier.weight' has rows for ", count, " classes; give each class one name");
  for (int64_t i = 0; i < count; ++i) {
    const Json& name = member(*names, std::to_string(i), config.path() + ": 'id2label'");
    check(name.is_string() || name.is_number_integer(), config.path(), ": 'id2label': the name of class ", i, " is ",
          shortened(name), "; it must be text in quotes");
    classes[static_cast<size_t>(i)] = name.is_string() ? name.get<std::string>() : json_text(name);
  }
  return classes;
}

// Returns one value for all channels or one per channel; absent: ViTImageProcessor's default, 0.5.
std::vector<double> channel_numbers(const HuggingFaceConfig& pixels, const char* key, int64_t channels,
                                    ImportedModel& to) {
  const Json* const found = pixels.find(key);
  if (!found) {
    to.notes.push_back(text(pixels.path(), ": '", key, "' is absent; 0.5 is used, as in transformers"));
    return {0.5};
  }
  if (found->is_number()) return {found->get<double>()};
  std::vector<double> values;
  if (found->is_array())
    for (const Json& each : *found)
      if (each.is_number()) values.push_back(each.get<double>());
  check(found->size() == values.size() && static_cast<int64_t>(values.size()) == channels, pixels.path(), ": '", key,
        "' is ", shortened(*found), "; it must be one number, or one per channel (", channels, ")");
  return values;
}

void set_pixel_scale(const std::vector<double>& mean, const std::vector<double>& std, ImportedModel& to) {
  const auto add = [&](const char* key, const std::vector<double>& values) {
    std::vector<std::string> words;
    for (const double value : values) words.push_back(print_number(value));
    to.settings.emplace_back(key, join(words));
  };
  add("pixel_mean", mean), add("pixel_std", std);
}

// Notes preprocessing other than the center square, resized with a triangle filter.
void note_other_steps(const HuggingFaceConfig& pixels, int64_t image_size, ImportedModel& to) {
  const auto note = [&](const auto&... parts) { to.notes.push_back(text(pixels.path(), ": ", parts...)); };
  const auto side = [](const Json* size, const char* key) {
    return size && size->is_object() ? size->value(key, Json()) : size ? *size : Json();
  };
  const bool resizes = pixels.flag("do_resize", true), crops = pixels.flag("do_center_crop", false);
  const Json *const size = pixels.find("size"), *const resample = pixels.find("resample");
  const Json shortest = size && size->is_object() ? side(size, "shortest_edge") : Json(),
             height = !size                ? Json(default_image_size)
                      : shortest.is_null() ? side(size, "height")
                                           : shortest,
             crop = crops ? side(pixels.find("crop_size"), "height") : Json();
  const bool same = resizes && shortest == image_size && (!crops || crop == image_size);
  const auto sized = [](const char* to, const Json& n) { return n.is_null() ? "" : to + json_text(n) + " pixels"; };
  if (!same)
    note("transformers ",
         !resizes             ? "does not resize images"
         : shortest.is_null() ? "resizes images to a square" + sized(" of ", height)
                              : "resizes the shortest edge" + sized(" to ", height),
         crops ? ", then crops the center" + sized(" to ", crop) : "", "; orrery resizes the center square to ",
         image_size, " pixels");
  constexpr int64_t bilinear = 2;  // Pillow's constant
  if (resizes && resample && *resample != bilinear)
    note("'resample' is ", shortened(*resample), "; orrery resizes images as with 2, bilinear");
  for (const std::string& key : pixels.true_flags())
    if (key.starts_with("do_") &&
        std::find(std::begin(known_steps), std::end(known_steps), key) == std::end(known_steps))
      note("'", key, "' is true; orrery skips this step");
}

// Returns the image settings, searched in transformers' order; path() is empty if there are none.
HuggingFaceConfig pixels_in(const std::string& folder) {
  const HuggingFaceConfig processor(folder, processor_file);
  const Json* const inside = processor.find("image_processor");
  if (!inside) return {folder, pixels_file};
  check_form(inside->is_object(), *inside, "image_processor", processor.path(), "an object {...}");
  return {processor.path(), *inside};
}

// Sets the scale (pixel / 255 - mean) / std and notes other preprocessing.
void read_preprocessor(const std::string& folder, const VitSettings& s, ImportedModel& to) {
  const HuggingFaceConfig pixels = pixels_in(folder);
  if (pixels.path().empty()) {
    set_pixel_scale({0.5}, {0.5}, to);
    to.notes.push_back(text(folder, " has neither ", pixels_file, " nor an 'image_processor' in ", processor_file,
                            "; pixel_mean=0.5 and pixel_std=0.5 are used, as in transformers, ",
                            "and the center square of an image is resized to ", s.image_size, " pixels"));
    return;
  }
  check(pixels.flag("do_rescale", true), pixels.path(),
        ": 'do_rescale': false is not supported, because orrery normalizes pixels between 0 and 1; set it to true and "
        "divide image_mean and image_std by 255");
  check(std::abs(pixels.number("rescale_factor", 1. / 255) * 255 - 1) < 1e-6, pixels.path(),
        ": 'rescale_factor' is ", print_number(pixels.number("rescale_factor", 1. / 255)),
        "; it must be 1 / 255, because orrery normalizes pixels between 0 and 1");
  std::vector<double> mean(static_cast<size_t>(s.channels), 0.0), std(static_cast<size_t>(s.channels), 1.0);
  if (pixels.flag("do_normalize", true)) {
    mean = channel_numbers(pixels, "image_mean", s.channels, to);
    std = channel_numbers(pixels, "image_std", s.channels, to);
  }
  set_pixel_scale(mean, std, to);
  note_other_steps(pixels, s.image_size, to);
}

// Sets the loss of the logits: softmax over all classes, or a sigmoid per class.
void read_loss(const HuggingFaceConfig& config, ImportedModel& to) {
  config.must_be("problem_type", {"single_label_classification", "multi_label_classification"});
  const Json* const type = config.find("problem_type");
  if (type && *type == "multi_label_classification") to.settings.emplace_back("loss", "sigmoid");
}

bool reads(const std::string& path) { return has_model_type(path, "vit"); }

ImportedModel read(const std::string& folder) {
  const HuggingFaceConfig config(folder);
  config.must_be("quantization_config", {});
  ImportedModel from;
  from.tensors = stored_tensors_of_folder(folder);
  const auto head = std::find_if(from.tensors.begin(), from.tensors.end(),
                                 [](const StoredTensor& each) { return each.name == "classifier.weight"; });
  check(head != from.tensors.end() && head->shape.size() == 2, "import: ", folder,
        " has no matrix 'classifier.weight'; only vision transformers with a classification head are supported");
  VitSettings s;
  config.read(s, "layers", "num_hidden_layers", 12), config.read(s, "heads", "num_attention_heads", 12);
  config.read(s, "width", "hidden_size", 768), config.read(s, "d_ff", "intermediate_size", 3072);
  config.read_side(s, "image_size", "image_size", 224), config.read_side(s, "patch", "patch_size", 16);
  config.read(s, "channels", "num_channels", 3), s.classes = head->shape[0];
  s.pooling = "class_token";
  s.normalization = parse_spec("layer(epsilon=" + print_number(config.positive("layer_norm_eps", 1e-12)) + ")");
  s.feed_forward = parse_spec("dense(" + config.activation("hidden_act", "gelu") + ")");
  from.settings = imported_settings(list_settings(s), Vit::info.name, config.path());
  read_preprocessor(folder, s, from);
  read_loss(config, from);
  from.classes = classes_of(config, s.classes);
  leave_out_biases(config, from);
  if (const std::vector<std::string> shared = shared_names(from.classes); !shared.empty())
    from.notes.push_back(text(config.path(), ": several classes have the same name: ", listed(shared)));
  from.mappings = mappings_of(s, s.d_ff);
  from.ignored["vit.embeddings.mask_token"] = "used only in training with masked patches";
  for (const char* pooler : {"vit.pooler.dense.weight", "vit.pooler.dense.bias"})
    from.ignored[pooler] = "not used for classification";
  return from;
}

void check_plain(const TrainSettings& run) {
  const auto& s = run.model_settings.as<VitSettings>();
  if (s.pooling != "class_token") refuse_setting(format, run, "pooling");
  if (s.mask != "full") refuse_setting(format, run, "mask");
  if (s.norm_place != "pre") refuse_setting(format, run, "norm_place");
  if (s.residual_gain != LearnableNumber{1}) refuse_setting(format, run, "residual_gain");
  if (print(s.embedding_scale) != "none" && print(s.embedding_scale) != "1")
    refuse_setting(format, run, "embedding_scale");
  check_plain_attention(format, run);
}

void write(const ExportedModel& what, const std::string& folder) {
  const TrainSettings& run = what.settings;
  const auto& s = run.model_settings.as<VitSettings>();
  check_plain(run);
  const Spec normalization = common_normalization(format, run, "layer");
  const Spec activation = activation_of_feed_forward(format, run, "dense");
  const int64_t d_ff = s.d_ff ? s.d_ff : 4 * s.width;
  const std::vector<std::string> classes = restore_classes(what.tokenizer);
  Json id2label = Json::object(), label2id = Json::object();
  for (int64_t i = 0; i < s.classes; ++i) {
    const auto index = static_cast<size_t>(i);
    const std::string name = index < classes.size() ? classes[index] : text("LABEL_", i);
    id2label[std::to_string(i)] = name, label2id[name] = i;
  }
  const bool many_labels = setting_of<std::string>(run.task_settings, "loss") == "sigmoid";
  const std::string problem_type = many_labels ? "multi_label_classification" : "single_label_classification";
  const Json config = {{"architectures", Json::array({"ViTForImageClassification"})},
                       {"model_type", "vit"},
                       {"num_hidden_layers", s.layers},
                       {"num_attention_heads", s.heads},
                       {"hidden_size", s.width},
                       {"intermediate_size", d_ff},
                       {"hidden_act", source_activation(format, activation, run)},
                       {"layer_norm_eps", epsilon_of(normalization)},
                       {"image_size", s.image_size},
                       {"patch_size", s.patch},
                       {"num_channels", s.channels},
                       {"qkv_bias", true},
                       {"hidden_dropout_prob", s.dropout},
                       {"attention_probs_dropout_prob", 0.0},
                       {"problem_type", problem_type},
                       {"id2label", id2label},
                       {"label2id", label2id}};
  const auto for_channels = [&](const char* key) {
    std::vector<double> values = setting_of<std::vector<double>>(run.task_settings, key);
    if (values.size() == 1) values.assign(static_cast<size_t>(s.channels), values[0]);
    return values;
  };
  const Json pixels = {{"image_processor_type", "ViTImageProcessor"},
                       {"do_resize", true},
                       {"size", {{"shortest_edge", s.image_size}}},
                       {"do_center_crop", true},
                       {"crop_size", {{"height", s.image_size}, {"width", s.image_size}}},
                       {"resample", 2},
                       {"do_rescale", true},
                       {"rescale_factor", 1.0 / 255},
                       {"do_normalize", true},
                       {"image_mean", for_channels("pixel_mean")},
                       {"image_std", for_channels("pixel_std")}};
  write_file_atomically(folder + "/" + pixels_file, json_text(pixels, 2) + "\n");
  write_hugging_face(folder, config, source_tensors(mappings_of(s, d_ff), what.model));
}

REGISTER_WEIGHT_FORMAT(vit, {.name = format,
                             .description = "ViT folders of Hugging Face",
                             .reads = reads,
                             .read = read,
                             .model = "vit",
                             .position = "learned",
                             .write = write});

}  // namespace
}  // namespace orrery::models
