// Cross attention: documents in queries and encoder output, and rotary positions in both.
#include <doctest/doctest.h>

#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

namespace {

constexpr int64_t width = 12, heads = 2, context = 32, encoder_width = 5;

std::unique_ptr<Position> position_of(const std::string& spec) {
  return make_position(parse_spec(spec), {.context = context, .width = width, .heads = heads, .causal = false});
}
std::unique_ptr<Sublayer> cross_layer(const std::string& spec, const Position* position) {
  auto layer = make_attention(parse_spec(spec), {.width = width,
                                                 .heads = heads,
                                                 .causal = false,
                                                 .context = context,
                                                 .position = position,
                                                 .encoder_width = encoder_width});
  name_paths(*layer);
  convert(*layer, Dtype::f64);
  initialize(*layer, 1);
  for (const NamedParameter& p : parameters_of(*layer)) {
    static int seed = 40;
    if (!std::isfinite(p.parameter->min_value))
      p.parameter->value.copy_from(random_tensor(p.parameter->value.shape(), ++seed));
  }
  return layer;
}
struct Result {
  Tensor y, dx, dencoder;
};
Result run(Sublayer& layer, const Tensor& x, const Tensor& encoder_output, const Tensor& dy, ForwardPass pass) {
  const Tensor leaf = x.clone().set_requires_grad(), encoder_leaf = encoder_output.clone().set_requires_grad();
  pass.encoder_output = encoder_leaf;
  const Tensor y = layer(leaf, pass);
  backward(y, dy);
  return {y.detach(), leaf.grad(), encoder_leaf.grad()};
}
Tensor tokens_between(const Tensor& x, int64_t begin, int64_t end) { return slice(x, 1, begin, end); }
Tensor ids(const std::vector<int32_t>& values) {
  return Tensor::from(Shape{1, static_cast<int64_t>(values.size())}, values);
}

}  // namespace

TEST_CASE("packed documents equal separate documents in cross attention, output and both gradients") {
  struct Document {
    int64_t begin, end, encoder_begin, encoder_end;
  };
  const std::vector<Document> documents = {{0, 4, 0, 2}, {4, 9, 2, 8}};
  ForwardPass plain, packed;
  packed.document_ids = ids({4, 4, 4, 4, 7, 7, 7, 7, 7});
  packed.encoder_document_ids = ids({4, 4, 7, 7, 7, 7, 7, 7});
  const Tensor x = random_tensor({1, 9, width}, 1), encoder_output = random_tensor({1, 8, encoder_width}, 2),
               dy = random_tensor({1, 9, width}, 3);
  std::vector<std::string> specs = attentions().names();
  std::erase(specs, "gau");
  for (const char* more : {"pointwise(sigmoid, length=keys_visible)", "softmax(persistent=3)",
                           "softmax(persistent=slots(3, split=yes))", "linear(exp, normalize=yes)"})
    specs.push_back(more);
  for (const std::string& spec : specs)
    for (const char* position_spec : {"none", "rotary", "rotary(pairs=interleaved)"}) {
      INFO(spec, ", ", position_spec);
      const auto position = position_of(position_spec);
      const auto layer = cross_layer(spec, position.get());
      const Result all = run(*layer, x, encoder_output, dy, packed);
      for (const Document& d : documents) {
        const Result one = run(*layer, tokens_between(x, d.begin, d.end),
                               tokens_between(encoder_output, d.encoder_begin, d.encoder_end),
                               tokens_between(dy, d.begin, d.end), plain);
        CHECK(largest_difference(one.y, tokens_between(all.y, d.begin, d.end)) <= 1e-12);
        CHECK(largest_difference(one.dx, tokens_between(all.dx, d.begin, d.end)) <= 1e-12);
        CHECK(largest_difference(one.dencoder, tokens_between(all.dencoder, d.encoder_begin, d.encoder_end)) <= 1e-12);
      }
      // Control: without the ids the results differ.
      CHECK(largest_difference(run(*layer, x, encoder_output, dy, plain).y, all.y) > 1e-3);
    }
}

TEST_CASE("rotary in cross attention rotates queries and encoder keys by their own positions") {
  const int64_t queries = 4, keys = 6, size = width / heads;
  const auto position = position_of("rotary");
  const auto layer = cross_layer("softmax(scale=0.7)", position.get()),
             plain = cross_layer("softmax(scale=0.7)", nullptr);
  const Tensor x = random_tensor({2, queries, width}, 1);
  const AttentionInputs given{.query = random_tensor({2, queries, heads, size}, 2),
                              .key = random_tensor({2, keys, heads, size}, 3),
                              .value = random_tensor({2, keys, heads, size}, 4)};
  AttentionInputs rotated = given;
  const auto rotate_pairs = [&](const Tensor& t) {  // rotates pair (i, i + 3) by p 10000^(-2i / 6)
    std::vector<double> numbers = t.to_vector();
    const int64_t tokens = t.size(1);
    for (int64_t row = 0; row < t.numel() / size; ++row)
      for (int64_t i = 0; i < size / 2; ++i) {
        const double angle = static_cast<double>(row / heads % tokens) *
                             std::pow(10000., -2 * static_cast<double>(i) / static_cast<double>(size));
        double &a = numbers[static_cast<size_t>(row * size + i)],
               &b = numbers[static_cast<size_t>(row * size + i + size / 2)];
        const double first = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle), a = first;
      }
    return Tensor::from(t.shape(), numbers, Dtype::f64);
  };
  rotated.query = rotate_pairs(given.query), rotated.key = rotate_pairs(given.key);
  const auto read = [&](Sublayer& of, const AttentionInputs& in, ForwardPass& pass) {
    return dynamic_cast<AttentionLayer&>(of).attend_heads(in, x, pass);
  };
  const NoGrad guard;
  ForwardPass pass;
  const Tensor expected = read(*plain, rotated, pass);
  CHECK(largest_difference(read(*layer, given, pass), expected) <= 1e-13);
  CHECK(largest_difference(read(*plain, given, pass), expected) > 1e-3);
  // A decoder that continues from a cache: only its queries have later positions.
  Cache cache;
  cache.length = 1;
  ForwardPass later;
  later.cache = &cache;
  AttentionInputs last = given;
  last.query = tokens_between(given.query, 1, queries);
  CHECK(largest_difference(read(*layer, last, later), tokens_between(expected, 1, queries)) <= 1e-13);
}
