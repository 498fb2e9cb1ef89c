// Optimizers of several ranks, each of which updates the elements that it owns: bit by bit as in one process.
#include <doctest/doctest.h>

#include <cmath>
#include <mutex>

#include "nn/optimizers/base/optimizer.h"
#include "tests/support/random_tensors.h"
#include "tests/support/thread_ranks.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::on_thread_ranks;
using orrery::testing::random_tensor;

namespace {

struct Model final : Module {  // vectors, matrices and packed matrices; sizes that no cut fits
  std::vector<Parameter> parameters;
  explicit Model(Dtype dtype) {
    for (const Shape& shape : {Shape{1}, Shape{31}, Shape{40, 23}, Shape{33}, Shape{17'001}, Shape{60, 11}})
      parameters.emplace_back(shape, constant(0.5), dtype);
    parameters.back().packed_rows = {20, 7, 33};
    int seed = 0;
    for (Parameter& p : parameters) p.value.copy_from(random_tensor(p.value.shape(), ++seed, dtype));
  }
  Tensor forward(const Tensor& x, ForwardPass&) override { return x; }
  void visit(Visitor& v) override {
    for (size_t i = 0; i < parameters.size(); ++i) v("p" + std::to_string(i), parameters[i]);
  }
};

struct Result {
  std::vector<double> values, norms;
  std::vector<std::vector<double>> state;
};

// Three steps with given gradients. Of another rank's gradients, a rank has NaN.
Result train(const std::string& spec, Dtype dtype, Ranks* ranks) {
  Model model(dtype);
  FlatParameters flat(model);
  const auto optimizer = make_optimizer(parse_spec(spec), flat);
  std::unique_ptr<Owners> owners;
  if (ranks) {
    owners = std::make_unique<Owners>(*ranks, optimizer->shares(ranks->count()));
    flat.set_owners(owners.get());
  }
  const Tensor& gradients = flat.gradients();
  Result result;
  for (int step = 1; step <= 3; ++step) {
    const Tensor all = Tensor::zeros_like(gradients);  // gaps between segments stay zero
    for (const FlatParameters::Segment& s : flat.segments())
      flat.segment_view(all, s).copy_from(random_tensor(s.parameter->value.shape(), step, gradients.dtype()));
    flat.zero_gradients(), flat.write_pending_zeros();
    gradients.copy_from(Tensor::full_like(gradients, gradients.shape(), NAN));
    const IndexRange mine = flat.mine();
    if (mine.size() > 0)
      gradients.flat_view(mine.begin, Shape{mine.size()}).copy_from(all.flat_view(mine.begin, Shape{mine.size()}));
    double norm = 0;
    CHECK(optimizer->step(0.01, 0.7, &norm));
    result.norms.push_back(norm);
  }
  if (ranks) optimizer->move_state(true);
  result.values = (flat.bf16_copy() ? flat.bf16_copy() : flat.values()).to_vector();
  for (const auto& [name, x] : optimizer->state()) result.state.push_back(x.to_vector());
  return result;
}

}  // namespace

TEST_CASE("owners: every optimizer has the bits of one process, in every dtype") {
  std::vector<std::string> specs = optimizers().names();
  specs.emplace_back("sgd(momentum=0.9, nesterov=yes)");
  specs.emplace_back("adagrad(grad_clip=0.01)");
  std::mutex checks;
  for (const std::string& spec : specs)
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
      const Result one = train(spec, dtype, nullptr);
      for (const int64_t count : {1, 2, 3, 7})
        on_thread_ranks(count, [&](Ranks& ranks) {
          const Result found = train(spec, dtype, &ranks);
          const std::lock_guard lock(checks);
          CAPTURE(spec);
          CAPTURE(dtype);
          CAPTURE(count);
          CHECK(found.norms == one.norms);
          CHECK(found.values == one.values);
          if (ranks.is_first()) CHECK(found.state == one.state);
        });
    }
}

TEST_CASE("owners: shares cover all elements evenly, and muon's cut no matrix") {
  Model model(Dtype::f32);
  FlatParameters flat(model);
  for (const std::string& name : optimizers().names()) {
    const auto optimizer = make_optimizer(parse_spec(name), flat);
    for (int64_t count = 1; count <= 9; ++count) {
      const std::vector<IndexRange> shares = optimizer->shares(count);
      CAPTURE(name);
      CAPTURE(count);
      REQUIRE(static_cast<int64_t>(shares.size()) == count);
      int64_t next = 0;
      for (const IndexRange& share : shares) {
        CHECK(share.begin == next);
        CHECK(std::abs(share.size() - flat.values().numel() / count) <= 1000);  // a matrix has 920 elements
        next = share.end;
        for (const FlatParameters::Segment& s : flat.segments())
          for (const FlatParameters::PackedTensor& matrix : FlatParameters::packed_tensors_of(s))
            if (name == "muon" && matrix.shape.rank() == 2)
              CHECK((next <= matrix.begin || matrix.end <= next));
      }
      CHECK(next == flat.values().numel());
    }
  }
}
