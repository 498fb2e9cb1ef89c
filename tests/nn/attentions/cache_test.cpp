// Memory use and sharing of a key-value cache. golden_attention_test and the models' tests check
// that decoding with a cache equals the full pass.
#include <doctest/doctest.h>

#include <set>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/base/initialization.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

namespace {

struct Decoder {
  std::unique_ptr<Sublayer> layer;
  explicit Decoder(const std::string& spec = "softmax")
      : layer(make_attention(parse_spec(spec), {.width = 8, .heads = 2})) {
    name_paths(*layer), initialize(*layer, 1);
  }
  Tensor operator()(const Tensor& x, Cache& cache) const {
    ForwardPass pass;
    pass.cache = &cache;
    const Tensor y = (*layer)(x, pass);
    cache.length += x.size(1);
    return y;
  }
};

Tensor token(const Tensor& x, int64_t at) { return slice(x, 1, at, at + 1); }

}  // namespace

TEST_CASE("a cache of one sequence grows in place: its buffer is reallocated a few times only") {
  const NoGrad guard;
  const Decoder decode;
  const Tensor x = random_tensor({1, 300, 8}, 1, Dtype::f32);
  Cache cache;
  std::set<const Buffer*> buffers;
  for (int64_t t = 0; t < 300; ++t) {
    decode(token(x, t), cache);
    const Cache::Entry& entry = cache.entries.begin()->second;
    CHECK(entry.key.shape() == Shape{1, t + 1, 2, 4});
    buffers.insert(entry.key.impl()->buffer.get());
  }
  CHECK(buffers.size() <= 9);
  ForwardPass pass;
  const Tensor all = (*decode.layer)(x, pass);
  Cache again;
  decode(slice(x, 1, 0, 299), again);
  CHECK(largest_difference(decode(token(x, 299), cache = again), token(all, 299)) <= 1e-6);
}

TEST_CASE("copies of a cache are independent") {
  const NoGrad guard;
  const Decoder decode;
  const Tensor x = random_tensor({1, 6, 8}, 2, Dtype::f32), other = random_tensor({1, 6, 8}, 3, Dtype::f32);
  Cache begun;
  for (int64_t t = 0; t < 3; ++t) decode(token(x, t), begun);
  Cache one = begun, two = begun;
  Tensor last_of_one, last_of_two;
  for (int64_t t = 3; t < 6; ++t) last_of_one = decode(token(x, t), one), last_of_two = decode(token(other, t), two);
  ForwardPass pass;
  CHECK(largest_difference(last_of_one, token((*decode.layer)(x, pass), 5)) <= 1e-6);
  const Tensor both = concatenate({slice(x, 1, 0, 3), slice(other, 1, 3, 6)}, 1);
  CHECK(largest_difference(last_of_two, token((*decode.layer)(both, pass), 5)) <= 1e-6);
  CHECK(begun.entries.begin()->second.key.size(1) == 3);
}

TEST_CASE("with a span, a cache drops keys out of reach, and outputs equal those of the full pass") {
  const NoGrad guard;
  const Decoder decode("softmax(span=fixed(20))");
  const Tensor x = random_tensor({1, 200, 8}, 4, Dtype::f32);
  ForwardPass pass;
  const Tensor all = (*decode.layer)(x, pass);
  Cache cache;
  for (int64_t t = 0; t < 200; ++t) {
    CHECK(largest_difference(decode(token(x, t), cache), token(all, t)) <= 1e-6);
    CHECK(cache.entries.begin()->second.key.size(1) <= 21 + 64);
  }
}
