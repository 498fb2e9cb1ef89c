#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <numbers>
#include <string>

#include "engine/math/random.h"
#include "engine/ops/ops.h"
#include "engine/settings/config.h"
#include "engine/system/files.h"
#include "engine/types/check.h"

using namespace orrery;

namespace {

struct Settings {
  std::string data = "examples/data/tinyshakespeare.txt", dtype = "f32", device = "cpu";
  int64_t layers = 4, heads = 4, width = 128, context = 64, batch_size = 12, steps = 2000, warmup_steps = 100,
          seed = 1337, log_every = 100, tokens = 400;
  double learning_rate = 1e-3, min_learning_rate = 1e-4;

  template <class V>
  void visit(V& v) {
    v("data", data), v("dtype", dtype, "", one_of({"f32", "f64"})), v("device", device);
    v("layers", layers, "", at_least(1)), v("heads", heads, "", at_least(1)), v("width", width, "", at_least(1));
    v("context", context, "", at_least(1)), v("batch_size", batch_size, "", at_least(1));
    v("steps", steps, "", at_least(1)), v("warmup_steps", warmup_steps, "", at_least(0)), v("seed", seed);
    v("log_every", log_every, "", at_least(1)), v("tokens", tokens, "", at_least(0));
    v("learning_rate", learning_rate, "", above(0)), v("min_learning_rate", min_learning_rate, "", at_least(0));
  }
};

struct Text {
  std::string characters;
  std::vector<int32_t> tokens, training;
  explicit Text(const std::string& text) : characters(text) {
    std::sort(characters.begin(), characters.end());
    characters.erase(std::unique(characters.begin(), characters.end()), characters.end());
    for (const char c : text) tokens.push_back(static_cast<int32_t>(characters.find(c)));
    training.assign(tokens.begin(), tokens.begin() + static_cast<int64_t>(static_cast<double>(tokens.size()) * (1 - 0.1)));
  }
};

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor centered = x - mean(x, {-1}, true);
  return centered / sqrt(mean(centered * centered, {-1}, true) + 1e-5) * weight + bias;
}

Tensor gelu(const Tensor& x) {
  const double c = std::sqrt(2 / std::numbers::pi);
  return x * (tanh(x * (x * x * (0.044715 * c) + c)) * 0.5 + 0.5);
}

struct Softmax {
  static constexpr const char* name = "softmax";
  Tensor forward(Saved& saved, const Tensor& s) const {
    const Tensor e = exp(s - max(s, -1, true)), p = e / sum(e, {-1}, true);
    saved.save(p);
    return p;
  }
  Gradients<1> backward(const Saved& saved, const Tensor& dp) const {
    const Tensor& p = saved[0], g = p * dp;
    return {g - p * sum(g, {-1}, true)};
  }
};

struct Block {
  Tensor norm1_weight, norm1_bias, query, key, value, attention_output, norm2_weight, norm2_bias, input, output;
};

struct Gpt {
  Settings s;
  std::vector<Tensor> parameters;
  Tensor tokens, positions, norm_weight, norm_bias, mask;
  std::vector<Block> blocks;

  Tensor parameter(const std::string& path, const Shape& shape, double std, double constant = 0, uint64_t first = 0) {
    std::vector<double> values(static_cast<size_t>(shape.numel()), constant);
    const RandomKey rng = RandomKey{static_cast<uint64_t>(s.seed), 0}.derive("initialization").derive(path);
    if (std > 0)
      for (size_t i = 0; i < values.size(); ++i) values[i] = std * normal(rng, first + i);
    parameters.push_back(Tensor::from(shape, values).to(parse_dtype()).to(parse_device(s.device)).clone().set_requires_grad());
    return parameters.back();
  }
  Dtype parse_dtype() const { return s.dtype == "f64" ? Dtype::f64 : Dtype::f32; }

  Gpt(const Settings& settings, int64_t vocabulary) : s(settings) {
    const int64_t C = s.width;
    const double std = 0.02, residual_std = 0.02 / std::sqrt(2.0 * static_cast<double>(s.layers));
    tokens = parameter("token_embedding.weight", {vocabulary, C}, std);
    positions = parameter("position_embedding.weight", {s.context, C}, std);
    for (int64_t i = 0; i < s.layers; ++i) {
      const std::string b = "blocks." + std::to_string(i) + ".";
      blocks.push_back({parameter("", {C}, 0, 1), parameter("", {C}, 0),
                        parameter(b + "attention.query_key_value.weight", {C, C}, std),
                        parameter(b + "attention.query_key_value.weight", {C, C}, std, 0, C * C),
                        parameter(b + "attention.query_key_value.weight", {C, C}, std, 0, 2 * C * C),
                        parameter(b + "attention.output.weight", {C, C}, residual_std), parameter("", {C}, 0, 1),
                        parameter("", {C}, 0), parameter(b + "feed_forward.input.weight", {4 * C, C}, std),
                        parameter(b + "feed_forward.output.weight", {C, 4 * C}, residual_std)});
    }
    norm_weight = parameter("", {C}, 0, 1), norm_bias = parameter("", {C}, 0);
  }

  Tensor attention(const Tensor& x, const Block& b) const {
    const int64_t B = x.size(0), T = x.size(1), H = s.heads, D = s.width / H;
    const auto heads = [&](const Tensor& w) {
      return permute(matmul(x, w, {.b = true}).reshape({B, T, H, D}), {0, 2, 1, 3});
    };
    const Tensor q = heads(b.query) * (1 / std::sqrt(static_cast<double>(D))), k = heads(b.key), v = heads(b.value);
    const Tensor y = matmul(record(Softmax{}, matmul(q, k, {.b = true}) + causal_mask(T)), v);
    return matmul(permute(y, {0, 2, 1, 3}).reshape({B, T, s.width}), b.attention_output, {.b = true});
  }
  Tensor causal_mask(int64_t T) const {
    std::vector<double> m(static_cast<size_t>(T * T));
    for (int64_t i = 0; i < T; ++i)
      for (int64_t j = i + 1; j < T; ++j) m[static_cast<size_t>(i * T + j)] = -INFINITY;
    return Tensor::from({T, T}, m, parse_dtype()).to(parse_device(s.device));
  }
  Tensor operator()(const Tensor& x) const {
    Tensor h = index_select(tokens, x) + positions.slice(0, x.size(1));
    for (const Block& b : blocks) {
      h = h + attention(layer_norm(h, b.norm1_weight, b.norm1_bias), b);
      const Tensor z = matmul(layer_norm(h, b.norm2_weight, b.norm2_bias), b.input, {.b = true});
      h = h + matmul(gelu(z), b.output, {.b = true});
    }
    return matmul(layer_norm(h, norm_weight, norm_bias), tokens, {.b = true});
  }
};

Tensor cross_entropy(const Tensor& z, const Tensor& targets) {
  const Tensor top = max(z.detach(), -1, true);
  const Tensor lse = log(sum(exp(z - top), {-1}, true)) + top;
  return mean(lse.reshape(targets.shape()) - gather_last(z, targets));
}

struct AdamW {
  double beta1 = 0.9, beta2 = 0.99, decay = 0.1;
  std::vector<Tensor> parameters, m, v;
  int step_number = 0;
  void step(double lr) {
    const NoGrad guard;
    double norm = 0;
    for (const Tensor& p : parameters) {
      norm += sum(p.grad() * p.grad()).item();
    }
    const double clip = std::min(1.0, 1 / std::sqrt(norm));
    ++step_number;
    const double c1 = 1 - std::pow(beta1, step_number), c2 = 1 - std::pow(beta2, step_number);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& p = parameters[i], g = p.grad() * clip;
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * (g * g);
      const double keep = p.shape().rank() >= 2 ? 1 - lr * decay : 1;
      p.copy_from(keep * p - lr / c1 * m[i] / (sqrt(v[i] / c2) + 1e-8));
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word.starts_with("--")) word = word.substr(2);
    const auto [key, value] = split_assignment("gpt", word);
    set_setting(s, "gpt", key, value);
  }
  const Text text(read_file(s.data));
  Gpt model(s, static_cast<int64_t>(text.characters.size()));
  AdamW optimizer{.parameters = model.parameters, .m = {}, .v = {}};
  for (const Tensor& p : model.parameters) optimizer.m.push_back(Tensor::zeros_like(p)), optimizer.v.push_back(Tensor::zeros_like(p));
  const RandomKey rng = RandomKey{static_cast<uint64_t>(s.seed), 0}.derive("text");
  std::vector<double> times;
  for (int64_t step = 0; step < s.steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<int32_t> in, out;
    for (int64_t row = 0; row < s.batch_size; ++row) {
      const auto first = text.training.begin() + static_cast<int64_t>(below(rng.derive(step).derive(0), static_cast<uint64_t>(row), text.training.size() - static_cast<uint64_t>(s.context)));
      in.insert(in.end(), first, first + s.context), out.insert(out.end(), first + 1, first + s.context + 1);
    }
    const Shape shape{s.batch_size, s.context};
    for (const Tensor& p : model.parameters) p.zero_grad();
    const Tensor loss = cross_entropy(model(Tensor::from(shape, in)), Tensor::from(shape, out));
    loss.backward();
    const double p = std::max(0.0, static_cast<double>(step - s.warmup_steps) / static_cast<double>(std::max<int64_t>(1, s.steps - s.warmup_steps)));
    const double lr = step < s.warmup_steps ? s.learning_rate * ((double)step + 1) / ((double)s.warmup_steps + 1) : s.min_learning_rate + (s.learning_rate - s.min_learning_rate) * 0.5 * (1 + std::cos(std::numbers::pi * p));
    optimizer.step(lr);
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    if ((step + 1) % s.log_every == 0 || step == 0 || step + 1 == s.steps) std::printf("%lld %.17g\n", (long long)step + 1, loss.item());
  }
  std::sort(times.begin(), times.end());
  std::printf("median %.2f min %.2f ms\n", times[times.size() / 2], times[0]);
}
