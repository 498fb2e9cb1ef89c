// Paths of modules in a model whose constructor does not name them.
#include <doctest/doctest.h>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "models/architectures/block.h"
#include "models/training/run_folder.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

namespace {

BlockOptions options(const std::string& attention, double dropout) {
  return {.width = 8, .heads = 2, .d_ff = 16, .attention = parse_spec(attention), .dropout = dropout};
}

struct TwoBlocks final : nn::Module {  // without nn::name_paths(*this) at the end of its constructor
  Block first, second;
  nn::Dropout third{0.5}, fourth{0.5};
  explicit TwoBlocks(const std::string& attention = "softmax", double dropout = 0)
      : first(options(attention, dropout)), second(options(attention, dropout)) {}
  Tensor forward(const Tensor& x, nn::ForwardPass& pass) override {
    const Tensor y = second(first(x, pass), pass);
    if (pass.cache) pass.cache->length += x.size(1);
    return y;
  }
  void visit(nn::Visitor& v) override {
    v("first", first), v("second", second), v("third", third), v("fourth", fourth);
  }
};

// Returns the difference between all tokens at once and one by one with a cache.
double difference_by_cache(TwoBlocks& model) {
  const NoGrad guard;
  const Tensor x = random_tensor({1, 5, 8}, 3).to(Dtype::f32);
  nn::ForwardPass all;
  const Tensor whole = model(x, all);
  nn::Cache cache;
  std::vector<Tensor> tokens;
  for (int64_t t = 0; t < 5; ++t) {
    nn::ForwardPass pass;
    pass.cache = &cache;
    tokens.push_back(model(slice(x, 1, t, t + 1), pass));
  }
  return largest_difference(concatenate(tokens, 1), whole);
}
Tensor mask(nn::Dropout& dropout) {
  nn::ForwardPass pass;
  pass.training = true, pass.rng = RandomKey{1, 2};
  return dropout(Tensor::full({64}, 1), pass);
}

template <class F>
void check_refused(const F& f) {
  expect_error(f).names("module").value("paths").offers("nn::name_paths(*this)").offers("initialize");
}

}  // namespace

TEST_CASE("paths: initializing a model names its modules: each has its own cache entry and random numbers") {
  for (const char* attention : {"softmax", "gau(size=4)"}) {
    INFO(attention);
    TwoBlocks model(attention);
    nn::initialize(model, 1);
    CHECK(model.second.path() == "second");
    CHECK(difference_by_cache(model) <= 1e-6);
    CHECK(largest_difference(mask(model.third), mask(model.fourth)) > 0);
  }
}

TEST_CASE("paths: an optimizer and a checkpoint name the modules of a model as well, and keep existing names") {
  TwoBlocks written, read;
  nn::initialize(written, 1);
  nn::FlatParameters flat(written);
  const auto optimizer = nn::make_optimizer(parse_spec("sgd"), flat);
  const Folder folder;
  const std::string tokenizer = "{}";
  RunFolder(folder.path.string()).write({.step = 1, .tokenizer = tokenizer, .settings = {}}, written, optimizer.get());
  load_weights(latest_checkpoint(folder.path.string()), read);
  CHECK(read.second.path() == "second");
  CHECK(difference_by_cache(read) <= 1e-6);

  TwoBlocks optimized;
  const nn::FlatParameters of_optimized(optimized);
  CHECK(optimized.fourth.path() == "fourth");
  nn::initialize(optimized.first, 2);  // a submodule alone
  CHECK(optimized.first.path() == "first");
}

TEST_CASE("without paths, a cache and random numbers have error messages") {
  for (const char* attention : {"softmax", "gau(size=4)"}) {
    TwoBlocks model(attention);
    check_refused([&] { difference_by_cache(model); });
  }
  TwoBlocks model;
  check_refused([&] { mask(model.third); });
  for (const char* attention : {"softmax(dropout=0.1)", "gau(size=4, dropout=0.1)"}) {
    TwoBlocks dropping(attention);
    nn::ForwardPass pass;
    const Tensor x = random_tensor({1, 5, 8}, 3).to(Dtype::f32);
    CHECK_NOTHROW(dropping(x, pass));
    pass.training = true;
    check_refused([&] { dropping(x, pass); });
  }
}
