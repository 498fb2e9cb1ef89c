#include "nn/attentions/base/cases.h"

#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/base/gradient_case.h"

namespace orrery::nn {
namespace {

constexpr int64_t context = 96;  // beyond every T, so that tables have unused rows

Tensor int_tensor(const Shape& shape, const std::vector<int32_t>& values) { return Tensor::from(shape, values); }

struct Condition {
  std::string title;
  AttentionLayerOptions options;
  Shape input;
  std::function<void(ForwardPass&)> prepare = {};
  int64_t finite_differences = 64;  // elements of each input; few where a pass takes long
};

// Tests every attention with T = 1, 17, 65 and head sizes 8, 20, 64 and odd ones (rotary: even).
std::vector<Condition> causal_conditions(bool even) {
  const int64_t small = even ? 12 : 9;
  return {{"causal, T 17, D 8", {.width = 16, .heads = 2}, {1, 17, 16}, {}, 24},
          {even ? "packed documents, T 6, D 4" : "packed documents, T 6, D 3",
           {.width = small, .heads = 3, .bias = false},
           {2, 6, small},
           [](ForwardPass& pass) {
             pass.document_ids = int_tensor({2, 6}, {0, 0, 0, 1, 1, 2, 5, 5, 5, 5, 5, 3});
           }},
          {"causal with lengths, T 65, D 20",
           {.width = 40, .heads = 2, .kv_heads = 1},
           {2, 65, 40},
           [](ForwardPass& pass) {
             pass.lengths = int_tensor({2}, {65, 34});
           },
           2},
          {"one token, D 64", {.width = 64, .heads = 1}, {2, 1, 64}, {}, 2}};
}
std::vector<Condition> full_conditions(bool even) {
  const int64_t width = even ? 24 : 20;
  return {{even ? "full with lengths, T 9, D 6" : "full with lengths, T 9, D 5",
           {.width = width, .heads = 4, .kv_heads = 2, .causal = false},
           {2, 9, width},
           [](ForwardPass& pass) {
             pass.lengths = int_tensor({2}, {9, 4});
           }},
          {"full, T 65, D 8", {.width = 8, .heads = 1, .causal = false}, {1, 65, 8}, {}, 2}};
}
std::vector<Condition> cross_conditions() {
  const auto with_encoder = [](int64_t keys, int64_t second) {
    const Tensor encoder_output = Tensor::empty({2, keys, 7}, Dtype::f64, Device::cpu);
    fill(encoder_output, normal(1), RandomKey{11, 3});
    return [=](ForwardPass& pass) {
      pass.encoder_output = encoder_output;
      pass.encoder_lengths = int_tensor({2}, {static_cast<int32_t>(keys), static_cast<int32_t>(second)});
    };
  };
  const auto options = [](int64_t width) {
    return AttentionLayerOptions{.width = width, .heads = 2, .causal = false, .encoder_width = 7};
  };
  return {{"cross, Tq 3, Tk 5, D 6", options(12), {2, 3, 12}, with_encoder(5, 2)},
          {"cross, Tq 17, Tk 65, D 8", options(16), {2, 17, 16}, with_encoder(65, 1), 2}};
}
std::vector<Condition> conditions(const AttentionCase& settings) {
  const bool even = settings.position.starts_with("rotary");
  std::vector<Condition> all = causal_conditions(even);
  const auto add = [&](const std::vector<Condition>& more) { all.insert(all.end(), more.begin(), more.end()); };
  if (settings.full) add(full_conditions(even));
  if (settings.cross) add(cross_conditions());
  return all;
}

// An attention with its position, as in a model.
class AttentionWithPosition final : public Module {
 public:
  AttentionWithPosition(const AttentionCase& settings, AttentionLayerOptions options) {
    options.context = context;
    if (settings.position != "none") {
      position_ =
          make_position(parse_spec(settings.position),
                        {.context = context, .width = options.width, .heads = options.heads, .causal = options.causal});
      options.position = position_.get();
    }
    attention_ = make_attention(parse_spec(settings.spec), options);
  }
  Tensor forward(const Tensor& x, ForwardPass& pass) override { return (*attention_)(x, pass); }
  void visit(Visitor& v) override {
    v("position", position_);
    v("attention", attention_);
  }

 private:
  std::unique_ptr<Position> position_;
  std::unique_ptr<Sublayer> attention_;
};

GradientCase case_of(const AttentionCase& settings, const Condition& condition, const CaseTensors& random) {
  const auto prepare = [settings, condition](ForwardPass& pass) {
    if (condition.prepare) condition.prepare(pass);
    pass.requested_losses = {settings.losses.begin(), settings.losses.end()};
    pass.training = settings.dropout, pass.rng = RandomKey{5, 8};
  };
  return module_case({.module = std::make_shared<AttentionWithPosition>(settings, condition.options),
                      .input = condition.input,
                      .prepare = prepare,
                      .compare_reference_mode = true,
                      .finite_differences = condition.finite_differences},
                     random);
}

}  // namespace

bool add_attention_case(std::string_view family, std::string_view name, const AttentionCase& settings) {
  const std::string position = settings.position == "none" ? "" : ", position=" + settings.position;
  std::string title = settings.spec + position + (settings.dropout ? ", dropping" : "");
  for (const std::string& loss : settings.losses) title += ", " + loss;
  for (const Condition& c : conditions(settings))
    add_gradient_case(
        std::string(family), std::string(name),
        [settings, c](const CaseTensors& random) { return case_of(settings, c, random); }, title + ", " + c.title);
  return true;
}

bool add_attention_cases(std::string_view name, const std::vector<std::string>& specs, bool cross) {
  for (const std::string& spec : specs) add_attention_case("attention", name, {.spec = spec, .cross = cross});
  return true;
}

}  // namespace orrery::nn
