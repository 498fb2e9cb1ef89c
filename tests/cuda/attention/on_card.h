// A case of attention through the kernels: operands on the device with gaps between tokens and guards around them.
#pragma once

#include "cuda/attention/attention.cuh"
#include "tests/cuda/kernel_testing.h"
#include "tests/support/fused_attention.h"

namespace orrery {
namespace {

using namespace testing;
using Case = testing::Case;

// Weightings as a formula file would write them
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

// A tensor with gaps between its tokens, on the device, with guards around it.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(Gapped<T>& host) : host_(host), device_(Device::cuda, host.data) {}
  Tokens<const T> in() {
    return host_.in().data ? Tokens<const T>{device_.data() + host_.gap, host_.stride} : host_.in();
  }
  Tokens<T> out() { return host_.out().data ? Tokens<T>{device_.data() + host_.gap, host_.stride} : host_.out(); }
  void fetch() {
    const Numbers all = device_.read();
    REQUIRE(all.size() == host_.data.size());  // the guards are as they were
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
  AttendInputs<T> inputs() {
    return {query.in(),           key.in(),   value.in(), slot_key.in(), slot_value.in(), relative_embedding.in(),
            relative_bias.data(), span.data()};
  }
  AttendGradients<T> gradients() {
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

template <class T, class Weights>
Results attend_on_card(const Case& c, const Weights& weights) {
  using A = Arithmetic<T>;
  const AttendSizes& s = c.sizes;
  const int64_t width = s.query_heads * s.value_size;
  Operands room = c.operands;
  for (Numbers* x : room.all()) std::fill(x->begin(), x->end(), not_a_number);
  StoredOperands<T> stored(s, c.operands), results(s, room);
  OperandsOnDevice<T> operands(stored), gradients(results);
  Gapped<T> host_output_gradient(c.output_gradient, width), host_output(c.output_gradient.size(), width);
  OnDevice<T> output_gradient(host_output_gradient), output(host_output);
  const std::vector<A> rows(static_cast<size_t>(c.rows()));
  NumbersOnDevice<A> log_sum(rows), sum(rows), positive_sum(rows), entropy(rows), zero_share(rows), maximum(rows);
  NumbersOnDevice<A> sum_gradient(converted<A>(c.sum_gradient)), entropy_gradient(converted<A>(c.entropy_gradient));
  NumbersOnDevice<int32_t> lengths(c.lengths), of_queries(c.query_document_ids), of_keys(c.key_document_ids);
  AttendOptions o = c.options;
  o.key_lengths = lengths.data(), o.query_document_ids = of_queries.data(), o.key_document_ids = of_keys.data();

  cuda::attend_forward<T>(s, o, weights, operands.inputs(), output.out(), log_sum.data());
  cuda::attend_statistics<T>(s, o, weights, operands.inputs(), log_sum.data(),
                             {sum.data(), positive_sum.data(), entropy.data(), zero_share.data(), maximum.data()});
  cuda::attend_backward<T>(s, o, weights, operands.inputs(), output.in(), log_sum.data(), output_gradient.in(),
                           gradients.gradients(),
                           {positive_sum.data(), entropy.data(), sum_gradient.data(), entropy_gradient.data()});
  output.fetch();
  return {host_output.numbers(), log_sum.read(), gradients.operands(), sum.read(),
          positive_sum.read(),   entropy.read(), zero_share.read(),    maximum.read()};
}
template <class T>
Results attend_on_card(const Case& c) {
  switch (c.kind) {
    case Kind::softmax:
      return attend_on_card<T>(c, cuda::SoftmaxWeights{});
    case Kind::relu:
      return attend_on_card<T>(c, cuda::PointwiseWeights<Relu>{});
    case Kind::gelu_tanh:
      break;
  }
  return attend_on_card<T>(c, cuda::PointwiseWeights<GeluTanh>{});
}

}  // namespace
}  // namespace orrery
