// Attention cases on the device: operands have gaps between tokens and guards around them.
#pragma once

#include <algorithm>

#include "cuda/attention/attention.cuh"
#include "tests/cuda/kernel_testing.h"
#include "tests/support/fused_attention.h"

namespace orrery {
namespace {

using namespace testing;
using Case = testing::Case;

// Weightings as in a formula file.
struct Relu {
  template <class A>
  HOST_DEVICE A value(A s) const {
    return s > 0 ? s : A(0);
  }
  template <class A>
  HOST_DEVICE A derivative(A s) const {
    return s > 0 ? A(1) : A(0);
  }
};
struct GeluTanh {
  static constexpr double c = 1.5957691216057308;
  template <class A>
  HOST_DEVICE A value(A s) const {
    return s * scalar::sigmoid(A(c) * s * (1 + A(0.044715) * s * s));
  }
  template <class A>
  HOST_DEVICE A derivative(A s) const {
    const A g = scalar::sigmoid(A(c) * s * (1 + A(0.044715) * s * s));
    return g + s * g * (1 - g) * A(c) * (1 + A(0.134145) * s * s);
  }
};

// A device tensor with gaps between its tokens and guards around it.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(Gapped<T>& host) : host_(host), device_(Device::cuda, host.data) {}
  using A = Arithmetic<T>;
  TensorView<const A> in() { return {out().data, out().stride}; }
  TensorView<A> out() {
    if (!host_.out().data) return {};
    return {reinterpret_cast<A*>(device_.data() + host_.gap), host_.stride};
  }
  void fetch() {
    const Numbers all = device_.read();
    REQUIRE(all.size() == host_.data.size());  // the guards are intact
    for (size_t i = 0; i < all.size(); ++i) host_.data[i] = static_cast<T>(static_cast<Arithmetic<T>>(all[i]));
  }

 private:
  Gapped<T>& host_;
  DeviceArray<T> device_;
};
template <class A>
class NumbersOnDevice {
 public:
  explicit NumbersOnDevice(const std::vector<A>& host) : empty_(host.empty()), device_(Device::cuda, host) {}
  A* data() { return empty_ ? nullptr : device_.data(); }
  Numbers read() { return device_.read(); }

 private:
  bool empty_;
  DeviceArray<A> device_;
};

template <class T>
struct OperandsOnDevice {
  using A = Arithmetic<T>;
  explicit OperandsOnDevice(StoredOperands<T>& x)
      : host(x),
        query(x.query),
        key(x.key),
        value(x.value),
        slot_key(x.slot_key),
        slot_value(x.slot_value),
        relative_embedding(x.relative_embedding),
        relative_bias(x.relative_bias),
        span(x.span) {}
  void give_to(AttentionProblem<A>& p) {
    p.query = query.in(), p.key = key.in(), p.value = value.in();
    p.slot_key = slot_key.in(), p.slot_value = slot_value.in(), p.relative_embedding = relative_embedding.in();
    p.relative_bias = relative_bias.data(), p.span = span.data();
  }
  AttentionGradients<A> gradients() {
    return {query.out(),          key.out(),  value.out(), slot_key.out(), slot_value.out(), relative_embedding.out(),
            relative_bias.data(), span.data()};
  }
  Operands operands() {
    for (OnDevice<T>* x : {&query, &key, &value, &slot_key, &slot_value, &relative_embedding}) x->fetch();
    Operands result = host.operands();
    result.relative_bias = relative_bias.read(), result.span = span.read();
    return result;
  }
  StoredOperands<T>& host;
  OnDevice<T> query, key, value, slot_key, slot_value, relative_embedding;
  NumbersOnDevice<A> relative_bias, span;
};

// change(p): sets what a case does not have, before forward and before backward.
template <class T, class Weights, class Change>
Results attention_on_gpu(const Case& c, const Weights& weights, const Change& change) {
  using A = Arithmetic<T>;
  const Sizes& s = c.sizes;
  const int64_t width = s.query_heads * s.value_size;
  Operands buffers = c.operands;
  for (Numbers* x : buffers.all()) std::fill(x->begin(), x->end(), not_a_number);
  StoredOperands<T> stored(s, c.operands), results(s, buffers);
  OperandsOnDevice<T> operands(stored), gradients(results);
  Gapped<T> host_output_gradient(c.output_gradient, width), host_output(c.output_gradient.size(), width);
  OnDevice<T> output_gradient(host_output_gradient), output(host_output);
  const std::vector<A> rows(static_cast<size_t>(c.rows()));
  NumbersOnDevice<A> log_sum(rows), sum(rows), positive_sum(rows), entropy(rows), zero_fraction(rows), maximum(rows);
  NumbersOnDevice<A> sum_gradient(converted<A>(c.sum_gradient)), entropy_gradient(converted<A>(c.entropy_gradient));
  NumbersOnDevice<int32_t> lengths(c.lengths), of_queries(c.query_document_ids), of_keys(c.key_document_ids),
      bits(c.table.bits), coverage(c.table.coverage);
  AttentionProblem<A> p = c.problem<A>();
  operands.give_to(p);
  p.is_bf16 = std::is_same_v<T, bf16>, p.output = output.out(), p.log_sum = log_sum.data();
  p.key_lengths = lengths.data(), p.query_document_ids = of_queries.data(), p.key_document_ids = of_keys.data();
  c.table.give_to(p, bits.data(), coverage.data());

  change(p);
  cuda::attention_forward(p, weights);
  p.statistics = {sum.data(), positive_sum.data(), entropy.data(), zero_fraction.data(), maximum.data()};
  cuda::attention_statistics(p, weights);
  p.output_gradient = output_gradient.in(), p.gradients = gradients.gradients();
  p.statistics_gradients = {positive_sum.data(), entropy.data(), sum_gradient.data(), entropy_gradient.data()};
  change(p);
  cuda::attention_backward(p, weights);
  output.fetch();
  return {host_output.numbers(), log_sum.read(), gradients.operands(), sum.read(),
          positive_sum.read(),   entropy.read(), zero_fraction.read(), maximum.read()};
}
template <class T, class Weights>
Results attention_on_gpu(const Case& c, const Weights& weights) {
  return attention_on_gpu<T>(c, weights, [](const auto&) {});
}
template <class T>
Results attention_on_gpu(const Case& c) {
  switch (c.kind) {
    case Kind::softmax:
      return attention_on_gpu<T>(c, cuda::SoftmaxWeights{});
    case Kind::relu:
      return attention_on_gpu<T>(c, cuda::PointwiseWeights<Relu>{});
    case Kind::gelu_tanh:
      break;
  }
  return attention_on_gpu<T>(c, cuda::PointwiseWeights<GeluTanh>{});
}

}  // namespace
}  // namespace orrery
