// A GPT in one file, on tensors, autograd and operations alone: embedding, attention, blocks, loss,
// AdamW, the training loop, sampling. It learns the characters of a text, then writes some.
//   05_gpt [cpu or cuda] [--steps=2000 --width=128 --data=FILE ...]
// Settings have the names and defaults of `orrery train`. Initial weights and batches are the same,
// so the losses agree: in f64 to 1e-9 for 100 steps (tests/examples/gpt_example_test.cpp). On one
// core a step takes at most twice the time of `orrery train`, whose operations are fused. Compare:
//   OMP_NUM_THREADS=1 build/05_gpt --steps=100
//   build/orrery train --data=examples/data/tinyshakespeare.txt --threads=1 --steps=100
// Shapes: B sequences of T tokens, C channels, H heads of D = C / H channels, a vocabulary of V.
// Radford et al. 2019 (GPT-2); Vaswani et al. 2017, arXiv:1706.03762.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <numbers>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/autograd/autograd.h"
#include "engine/math/random.h"
#include "engine/ops/ops.h"
#include "engine/settings/config.h"
#include "engine/system/files.h"
#include "engine/types/check.h"

using namespace orrery;

namespace {

struct Settings {
  std::string device = "cpu", dtype = "f32", data = "examples/data/tinyshakespeare.txt";
  int64_t layers = 4, heads = 4, width = 128, context = 64, batch_size = 12, steps = 2000, warmup_steps = 100;
  int64_t seed = 1337, log_every = 100, tokens = 500;
  double learning_rate = 1e-3, min_learning_rate = 1e-4;

  template <class V>
  void visit(V& v) {
    v("device", device, "cpu or cuda"), v("dtype", dtype, "of weights and activations", one_of({"f32", "f64"}));
    v("data", data, "a text; each byte is a token"), v("layers", layers, "number of blocks", between(1, 4096));
    v("heads", heads, "H, which divides C", between(1, 65536)), v("width", width, "C", between(1, 65536));
    v("context", context, "T", between(1, 65536)), v("batch_size", batch_size, "B", between(1, 16384));
    v("steps", steps, "number of updates", between(1, 1e9));
    v("warmup_steps", warmup_steps, "steps in which the learning rate rises", between(0, 1e9));
    v("learning_rate", learning_rate, "its peak", above(0, 1e30));
    v("min_learning_rate", min_learning_rate, "its final value", between(0, 1000));
    v("seed", seed, "random seed of weights, batches and sample", between(0, 9e18));
    v("log_every", log_every, "steps per line", between(1, 1e9)), v("tokens", tokens, "of the sample", between(0, 1e9));
  }
  Dtype float_type() const { return dtype == "f64" ? Dtype::f64 : Dtype::f32; }
  RandomKey rng() const { return {static_cast<uint64_t>(seed), 0}; }
};
Tensor on_device(const Tensor& x, const Settings& s) { return x.to(parse_device(s.device)); }

// ---- data

struct Text {
  std::string vocabulary;       // the distinct bytes; a token is an index of one
  std::vector<int32_t> tokens;  // the first nine tenths, as `orrery train` holds out a tenth for validation

  explicit Text(const std::string& bytes) {
    const std::set<unsigned char> distinct(bytes.begin(), bytes.end());
    vocabulary.assign(distinct.begin(), distinct.end());
    const auto size = static_cast<size_t>(static_cast<double>(bytes.size()) * (1 - 0.1));
    for (const char byte : bytes.substr(0, size)) tokens.push_back(static_cast<int32_t>(vocabulary.find(byte)));
  }
};

// Returns inputs and targets, both (B, T) i32. The rows of the inputs begin at random tokens, those
// of the targets one token later. They depend only on seed and step.
std::pair<Tensor, Tensor> batch_of(const Text& text, const Settings& s, int64_t step) {
  const RandomKey rng = s.rng().derive("text").derive(step).derive(0);
  const auto starts = static_cast<int64_t>(text.tokens.size()) - s.context;
  check(starts > 0, "05_gpt: data has ", text.tokens.size(), " tokens for training, but context=", s.context,
        " needs more; use a longer text or a shorter context");
  std::vector<int32_t> inputs, targets;
  for (int64_t row = 0; row < s.batch_size; ++row) {
    const uint64_t start = below(rng, static_cast<uint64_t>(row), static_cast<uint64_t>(starts));
    const auto first = text.tokens.begin() + static_cast<int64_t>(start), last = first + s.context;
    inputs.insert(inputs.end(), first, last), targets.insert(targets.end(), first + 1, last + 1);
  }
  const Shape shape{s.batch_size, s.context};
  return {on_device(Tensor::from(shape, inputs), s), on_device(Tensor::from(shape, targets), s)};
}

// ---- the model

// Softmax along the last axis. The factor exp(-max s) cancels, and without it exp would overflow.
//   p_j = exp(s_j) / sum_k exp(s_k) = exp(s_j - max s) / sum_k exp(s_k - max s)
// dp_j/ds_k = p_j ([j = k] - p_k). So autograd computes, with g = dloss/dp:
//   dloss/ds_k = sum_j g_j dp_j/ds_k = p_k (g_k - sum_j p_j g_j)
Tensor softmax(const Tensor& s) {
  const Tensor e = exp(s - max(s.detach(), -1, true));
  return e / sum(e, {-1}, true);
}

Tensor linear(const Tensor& x, const Tensor& weight) { return matmul(x, weight, {.b = true}); }  // x W^T

// GELU: x times about P(N(0, 1) < x). Hendrycks and Gimpel 2016, arXiv:1606.08415.
//   y = x (1 + tanh(u)) / 2,   u = sqrt(2 / pi) (x + 0.044715 x^3) = x (b x^2 + a)
Tensor gelu(const Tensor& x) {
  const double a = std::sqrt(2 / std::numbers::pi), b = 0.044715 * a;
  return x * (tanh(x * (x * x * b + a)) * 0.5 + 0.5);
}

// Layer normalization: each token gets mean 0 and variance 1. Ba et al. 2016, arXiv:1607.06450.
//   y = weight (x - mean x) / sqrt(mean (x - mean x)^2 + 1e-5) + bias
struct LayerNorm {
  Tensor weight, bias;  // (C)
  Tensor operator()(const Tensor& x) const {
    const Tensor centered = x - mean(x, {-1}, true), variance = mean(centered * centered, {-1}, true);
    return centered / sqrt(variance + 1e-5) * weight + bias;
  }
};

// Cross-entropy: the mean of -ln p_t over all tokens, with p = softmax(z) and the target t.
//   -ln p_t = ln sum_v exp(z_v) - z_t,   so dloss/dz_v = (p_v - [v = t]) / (B T)
// A uniform p gives ln V. The mean is computed in f64, because in f32 it would lose digits.
Tensor cross_entropy(const Tensor& z, const Tensor& targets) {  // z (B, T, V), targets (B, T)
  const Tensor top = max(z.detach(), -1, true), log_sum = log(sum(exp(z - top), {-1}, true)) + top;
  return mean((log_sum.reshape(targets.shape()) - gather_last(z, targets)).to(Dtype::f64));
}

class Gpt {
 public:
  Gpt(const Settings& settings, int64_t vocabulary) : s_(settings) {
    const int64_t c = s_.width;
    check(c % s_.heads == 0, "05_gpt: heads (", s_.heads, ") must divide width (", c, "); change one of them");
    // The residual stream is a sum of 2 layers outputs. A smaller std keeps its variance.
    const double std = 0.02, output_std = std / std::sqrt(2.0 * static_cast<double>(s_.layers));
    tokens_ = draw("token_embedding.weight", Shape{vocabulary, c}, std);
    positions_ = draw("position_embedding.weight", Shape{s_.context, c}, std);
    for (int64_t i = 0; i < s_.layers; ++i) {
      const std::string block = "blocks." + std::to_string(i), qkv = block + ".attention.query_key_value.weight";
      blocks_.push_back({.attention_norm = norm(),
                         .query = draw(qkv, Shape{c, c}, std),  // `orrery train` packs these three in one matrix
                         .key = draw(qkv, Shape{c, c}, std, c * c),
                         .value = draw(qkv, Shape{c, c}, std, 2 * c * c),
                         .output = draw(block + ".attention.output.weight", Shape{c, c}, output_std),
                         .feed_forward_norm = norm(),
                         .up = draw(block + ".feed_forward.input.weight", Shape{4 * c, c}, std),
                         .down = draw(block + ".feed_forward.output.weight", Shape{c, 4 * c}, output_std)});
    }
    norm_ = norm();
  }

  // Each layer adds its output to the residual stream x. N: layer normalization; z: the logits.
  //   x = E[token] + P[position]
  //   x = x + attention(N(x)),   x = x + gelu(N(x) W_up^T) W_down^T        in each block
  //   z = N(x) E^T
  Tensor operator()(const Tensor& tokens) const {  // (B, T) i32 -> (B, T, V)
    Tensor x = index_select(tokens_, tokens) + positions_.slice(0, tokens.size(1));
    for (const Block& block : blocks_) {
      x = x + attention(block, block.attention_norm(x));
      x = x + linear(gelu(linear(block.feed_forward_norm(x), block.up)), block.down);
    }
    return linear(norm_(x), tokens_);
  }
  const std::vector<Tensor>& parameters() const { return parameters_; }

 private:
  struct Block {
    LayerNorm attention_norm;
    Tensor query, key, value, output;  // (C, C)
    LayerNorm feed_forward_norm;
    Tensor up, down;  // (4 C, C), (C, 4 C)
  };

  // Causal attention. In each head, token i averages the values of the tokens j <= i:
  //   s_ij = <q_i, k_j> / sqrt(D) + mask_ij,   p_i = softmax(s_i),   y_i = sum_j p_ij v_j
  // mask_ij = -infinity makes p_ij 0 for j > i: token i must not use the tokens that it predicts.
  // If the channels of q and k have variance 1, <q, k> has variance D. 1 / sqrt(D) makes it 1: a
  // softmax of large scores has one p near 1, and gradients near 0.
  Tensor attention(const Block& block, const Tensor& x) const {
    const int64_t b = x.size(0), t = x.size(1), c = x.size(2), d = c / s_.heads;
    const auto heads = [&](const Tensor& weight) {
      return permute(linear(x, weight).reshape(Shape{b, t, s_.heads, d}), {0, 2, 1, 3});
    };
    const Tensor q = heads(block.query) / std::sqrt(static_cast<double>(d));
    const Tensor k = heads(block.key), v = heads(block.value);             // q, k, v: (B, H, T, D)
    const Tensor p = softmax(matmul(q, k, {.b = true}) + causal_mask(t));  // (B, H, T, T)
    const Tensor y = permute(matmul(p, v), {0, 2, 1, 3});                  // (B, T, H, D)
    return linear(y.reshape(Shape{b, t, c}), block.output);
  }
  Tensor causal_mask(int64_t t) const {  // (T, T)
    std::vector<double> mask;
    for (int64_t i = 0; i < t; ++i)
      for (int64_t j = 0; j < t; ++j) mask.push_back(j > i ? -INFINITY : 0);
    return on_device(Tensor::from(Shape{t, t}, mask, s_.float_type()), s_);
  }

  // Draws from N(0, std^2) as `orrery train` does: element i is number first + i of the path's key.
  Tensor draw(const std::string& path, const Shape& shape, double std, int64_t first = 0) {
    const RandomKey rng = s_.rng().derive("initialization").derive(path);
    std::vector<double> values;
    for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(std * normal(rng, static_cast<uint64_t>(first + i)));
    return parameter(Tensor::from(shape, values));  // f32, also for f64
  }
  LayerNorm norm() { return {parameter(Tensor::full(Shape{s_.width}, 1)), parameter(Tensor::zeros(Shape{s_.width}))}; }
  Tensor parameter(const Tensor& initial) {
    parameters_.push_back(on_device(initial.to(s_.float_type()), s_).set_requires_grad());
    return parameters_.back();
  }

  Settings s_;
  std::vector<Tensor> parameters_;
  Tensor tokens_, positions_;  // E (V, C), P (T, C)
  std::vector<Block> blocks_;
  LayerNorm norm_;
};

// ---- training and sampling

// AdamW. Kingma and Ba 2015, arXiv:1412.6980; Loshchilov and Hutter 2019, arXiv:1711.05101.
//   m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2           moving averages, from 0
//   p <- p - lr decay p - lr (m / c1) / (sqrt(v / c2) + 1e-8),   c1 = 1 - b1^t,  c2 = 1 - b2^t
// After t steps the weights (1 - b1) b1^i of the gradients in m add up to c1, so m / c1 is a mean.
// m / sqrt(v) has no unit: the step is at most about lr, for gradients of any size. Only matrices
// decay. First, if the norm of the gradients of all parameters exceeds 1, it is scaled to 1.
struct AdamW {
  std::vector<Tensor> parameters, m = {}, v = {};
  int t = 0;

  void step(double lr) {
    const NoGrad guard;
    Tensor square = Tensor::zeros_like(parameters[0], Shape{});
    for (const Tensor& p : parameters) square = square + sum(p.grad() * p.grad());
    const double clip = 1 / std::max(1.0, std::sqrt(square.item())), b1 = 0.9, b2 = 0.99;
    const double c1 = 1 - std::pow(b1, ++t), c2 = 1 - std::pow(b2, t);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Tensor &p = parameters[i], g = p.grad() * clip;
      const double decay = p.shape().rank() == 2 ? 0.1 : 0;
      if (t == 1) m.push_back(Tensor::zeros_like(p)), v.push_back(Tensor::zeros_like(p));
      m[i] = b1 * m[i] + (1 - b1) * g;
      v[i] = b2 * v[i] + (1 - b2) * (g * g);
      p.copy_from((1 - lr * decay) * p - lr / c1 * m[i] / (sqrt(v[i] / c2) + 1e-8));
      p.zero_grad();
    }
  }
};

// A linear rise, then half a period of a cosine. Loshchilov and Hutter 2017, arXiv:1608.03983.
double learning_rate(const Settings& s, int64_t step) {
  const auto now = static_cast<double>(step), warmup = static_cast<double>(s.warmup_steps);
  if (now < warmup) return s.learning_rate * (now + 1) / (warmup + 1);
  const double fraction = (now - warmup) / (static_cast<double>(s.steps) - warmup), peak = s.learning_rate;
  return s.min_learning_rate + (peak - s.min_learning_rate) * (1 + std::cos(std::numbers::pi * fraction)) / 2;
}

// Prints tokens. Each is drawn from p after the last T tokens: it is the first one at which the sum
// of p exceeds a uniform random number. `orrery generate` caches keys and values; this does not.
void sample(const Gpt& model, const Text& text, const Settings& s) {
  const NoGrad guard;
  const RandomKey rng = s.rng().derive("generate");
  std::vector<int32_t> tokens = {0};  // the smallest byte, usually a line break
  for (int64_t i = 0; i < s.tokens; ++i) {
    const std::span<const int32_t> all = tokens, last = all.last(std::min(all.size(), static_cast<size_t>(s.context)));
    const Tensor input = Tensor::from(Shape{1, static_cast<int64_t>(last.size())}, last);
    const Tensor logits = model(on_device(input, s))[0][input.size(1) - 1];
    const std::vector<double> p = softmax(logits).to_vector();
    double left = uniform(rng, static_cast<uint64_t>(i));
    size_t token = 0;
    while (token + 1 < p.size() && (left -= p[token]) >= 0) ++token;
    tokens.push_back(static_cast<int32_t>(token));
    std::cout << text.vocabulary[token] << std::flush;
  }
  std::cout << "\n";
}

}  // namespace

int main(int argc, char** argv) try {
  Settings s;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto [key, value] = split_assignment("05_gpt", word.starts_with("--") ? word.substr(2) : "device=" + word);
    set_setting(s, "05_gpt", key, value);
  }
  std::cout.precision(s.dtype == "f64" ? 15 : 8);
  const Text text(read_file(s.data));
  const Gpt model(s, static_cast<int64_t>(text.vocabulary.size()));
  AdamW optimizer{.parameters = model.parameters()};
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t step = 0; step < s.steps; ++step) {
    const auto [inputs, targets] = batch_of(text, s, step);
    const Tensor loss = cross_entropy(model(inputs), targets);
    loss.backward();
    optimizer.step(learning_rate(s, step));
    if (step > 0 && (step + 1) % s.log_every != 0 && step + 1 < s.steps) continue;
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    std::cout << "step " << step + 1 << "/" << s.steps << "  loss " << loss.item() << "  "
              << std::lround(time.count() / static_cast<double>(step + 1)) << " ms per step\n";
  }
  sample(model, text, s);
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
