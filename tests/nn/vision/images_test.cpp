// Convolution, pooling and patches compared with plain loops, and properties stated in headers.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/system/parallel.h"
#include "nn/layers/linear.h"
#include "nn/vision/convolution.h"
#include "nn/vision/patches.h"
#include "nn/vision/pooling.h"
#include "tests/support/golden.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::expect_error;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;
using orrery::testing::whole_numbers;

namespace {

// A 4-D array with access by indices.
struct Numbers {
  Shape shape;
  std::vector<double> values;
  explicit Numbers(const Tensor& x) : shape(x.shape()), values(x.to_vector()) {}
  double& at(int64_t a, int64_t b, int64_t c, int64_t d) {
    return values[static_cast<size_t>(((a * shape[1] + b) * shape[2] + c) * shape[3] + d)];
  }
  Tensor tensor() const { return Tensor::from(shape, values, Dtype::f64); }
};

struct Plain {  // y, and the gradients of x and of the weight for dy
  Tensor y, dx, dw;
};
Plain plain_convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const WindowSteps& s,
                        const Tensor& dy) {
  Numbers in(x), w(weight), g(dy), y(Tensor::zeros_like(dy)), dx(Tensor::zeros_like(x)), dw(Tensor::zeros_like(weight));
  const std::vector<double> b = bias.to_vector();
  for (int64_t p = 0; p < x.size(0); ++p)
    for (int64_t r = 0; r < dy.size(1); ++r)
      for (int64_t c = 0; c < dy.size(2); ++c)
        for (int64_t n = 0; n < weight.size(0); ++n) {
          y.at(p, r, c, n) += b[static_cast<size_t>(n)];
          for (int64_t i = 0; i < weight.size(1); ++i)
            for (int64_t j = 0; j < weight.size(2); ++j) {
              const int64_t h = r * s.stride.vertical - s.padding.vertical + i * s.dilation.vertical,
                            v = c * s.stride.horizontal - s.padding.horizontal + j * s.dilation.horizontal;
              if (h < 0 || h >= x.size(1) || v < 0 || v >= x.size(2)) continue;
              for (int64_t k = 0; k < x.size(3); ++k) {
                y.at(p, r, c, n) += w.at(n, i, j, k) * in.at(p, h, v, k);
                dx.at(p, h, v, k) += w.at(n, i, j, k) * g.at(p, r, c, n);
                dw.at(n, i, j, k) += in.at(p, h, v, k) * g.at(p, r, c, n);
              }
            }
        }
  return {y.tensor(), dx.tensor(), dw.tensor()};
}

}  // namespace

TEST_CASE("convolution is its sum over windows, with every gradient, exactly in whole numbers") {
  struct Case {
    Shape x, weight;
    WindowSteps steps;
    int64_t rows, columns;
  };
  const std::vector<Case> cases = {{{2, 5, 7, 3}, {4, 3, 3, 3}, {}, 3, 5},
                                   {{2, 8, 8, 2}, {3, 3, 3, 2}, {.stride = 2, .padding = 1}, 4, 4},
                                   {{1, 9, 6, 1}, {2, 1, 4, 1}, {.stride = {3, 1}, .padding = {0, 2}}, 3, 7},
                                   {{1, 9, 9, 2}, {1, 3, 2, 2}, {.padding = {2, 0}, .dilation = {2, 5}}, 9, 4},
                                   {{1, 7, 7, 2}, {3, 2, 2, 2}, {.stride = 3}, 2, 2},  // the last pixels are not read
                                   {{2, 3, 3, 5}, {4, 3, 3, 5}, {}, 1, 1},
                                   {{2, 4, 3, 5}, {4, 1, 1, 5}, {.stride = 2}, 2, 2},
                                   {{2, 4, 3, 5}, {4, 1, 1, 5}, {}, 4, 3}};
  int seed = 1;
  for (const Case& c : cases) {
    INFO(c.x, " ", c.weight);
    const Tensor x = whole_numbers(c.x, seed++).set_requires_grad(),
                 w = whole_numbers(c.weight, seed++).set_requires_grad(),
                 b = whole_numbers({c.weight[0]}, seed++).set_requires_grad();
    const Tensor y = convolution(x, w, b, c.steps);
    REQUIRE(y.shape() == Shape{c.x[0], c.rows, c.columns, c.weight[0]});
    const Tensor dy = whole_numbers(y.shape(), seed++);
    const Plain plain = plain_convolution(x, w, b, c.steps, dy);
    backward(y, dy);
    CHECK(largest_difference(y, plain.y) == 0);
    CHECK(largest_difference(x.grad(), plain.dx) == 0);
    CHECK(largest_difference(w.grad(), plain.dw) == 0);
    CHECK(largest_difference(b.grad(), sum(dy, {0, 1, 2})) == 0);
  }
}

TEST_CASE("convolution, pools and patches agree with PyTorch, outputs and every gradient") {
  const testing::Golden golden("vision.safetensors");
  const auto channels_last = [](const Tensor& t) { return t.shape().rank() == 4 ? permute(t, {0, 2, 3, 1}) : t; };
  // f takes x, weight and bias, if the case has them; gradients are compared in the file's order.
  const auto compare = [&](const std::string& name, const auto& f) {
    for (const auto& kind : {std::pair(Dtype::f64, 1e-12), std::pair(Dtype::f32, 1e-5)}) {
      const Dtype dtype = kind.first;
      const double tolerance = kind.second;
      INFO(name, " ", orrery::name(dtype));
      std::vector<Tensor> in;
      for (const char* n : {".x", ".weight", ".bias"})
        in.push_back(golden.has(name + n) ? golden(name + n).to(dtype).clone().set_requires_grad() : Tensor());
      const Tensor wanted = channels_last(golden(name + ".y").to(dtype));
      const Tensor y = f(channels_last(in[0]), in[1], in[2]).reshape(wanted.shape());
      CHECK(largest_difference(y, wanted) <= tolerance);
      backward(y, channels_last(golden(name + ".dy").to(dtype)));
      for (size_t i = 0; i < 3; ++i)
        if (in[i])
          CHECK(largest_difference(in[i].grad(), golden(name + std::array{".dx", ".dweight", ".dbias"}[i]).to(dtype)) <=
                tolerance);
    }
  };
  const auto convolve = [&](const WindowSteps& steps) {
    return
        [=](const Tensor& x, const Tensor& w, const Tensor& b) { return convolution(x, channels_last(w), b, steps); };
  };
  compare("convolution_3x3_stride_1_padding_0", convolve({}));
  compare("convolution_3x3_stride_1_padding_1", convolve({.padding = 1}));
  compare("convolution_3x3_stride_2_padding_1", convolve({.stride = 2, .padding = 1}));
  compare("convolution_2x3_stride_2_padding_0", convolve({.stride = 2}));
  compare("convolution_1x1_stride_1_padding_0", convolve({}));
  compare("convolution_without_bias", convolve({.padding = 1}));
  const auto pool = [](const auto& operation, int64_t size, const WindowSteps& steps) {
    return [=](const Tensor& x, const Tensor&, const Tensor&) { return operation(x, size, steps); };
  };
  compare("maximum_pooling_2_2_0", pool(max_pool, 2, {.stride = 2}));
  compare("maximum_pooling_3_2_1", pool(max_pool, 3, {.stride = 2, .padding = 1}));
  compare("maximum_pooling_3_1_1", pool(max_pool, 3, {.padding = 1}));
  compare("average_pooling_2_2_0", pool(average_pool, 2, {.stride = 2}));
  compare("average_pooling_3_2_1_real_pixels", pool(average_pool, 3, {.stride = 2, .padding = 1}));
  compare("average_pooling_3_1_1_real_pixels", pool(average_pool, 3, {.padding = 1}));
  compare("average_pooling_global",
          [](const Tensor& x, const Tensor&, const Tensor&) { return global_average_pool(x); });
  compare("patch_embedding", [&](const Tensor& x, const Tensor& w, const Tensor& b) {  // the file is channels-first
    return patch_embedding(x, channels_last(w.reshape({5, 3, 2, 2})), b);
  });
}

TEST_CASE("convolution over more images than the scratch memory holds at once equals image by image") {
  const int64_t images = 5;  // 64 x 64 windows of 9 x 40 values: two images at a time
  const Tensor x = whole_numbers({images, 64, 64, 40}, 1, Dtype::f32).set_requires_grad(),
               w = whole_numbers({2, 3, 3, 40}, 2, Dtype::f32).set_requires_grad();
  const WindowSteps steps{.padding = 1};
  const Tensor y = convolution(x, w, {}, steps), dy = whole_numbers(y.shape(), 3, Dtype::f32);
  backward(y, dy);
  Tensor dw = Tensor::zeros_like(w);
  for (int64_t i = 0; i < images; ++i) {
    const Tensor one = x.detach().slice(i, i + 1).clone().set_requires_grad(),
                 v = w.detach().clone().set_requires_grad();
    const Tensor one_output = convolution(one, v, {}, steps);
    backward(one_output, dy.slice(i, i + 1));
    CHECK(largest_difference(one_output, y.detach().slice(i, i + 1)) == 0);
    CHECK(largest_difference(one.grad(), x.grad().slice(i, i + 1)) == 0);
    dw = dw + v.grad();
  }
  CHECK(largest_difference(w.grad(), dw) == 0);
}

TEST_CASE("convolution is bit-identical for one and two threads") {
  const int before = thread_count();
  std::vector<Tensor> results;
  for (const int threads : {1, 2}) {
    set_thread_count(threads);
    const Tensor x = random_tensor({4, 33, 31, 16}, 1, Dtype::f32).set_requires_grad(),
                 w = random_tensor({24, 3, 3, 16}, 2, Dtype::f32).set_requires_grad();
    const Tensor y = max_pool(convolution(x, w, {}, {.stride = 2, .padding = 1}), 3, {.stride = 2, .padding = 1});
    backward(y, random_tensor(y.shape(), 3, Dtype::f32));
    for (const Tensor& t : {y.detach(), x.grad(), w.grad()}) results.push_back(t.clone());
  }
  set_thread_count(before);
  for (int i = 0; i < 3; ++i) CHECK(largest_difference(results[i], results[3 + i]) == 0);
}

TEST_CASE("bf16 convolutions and pools sum in f32 and round once") {
  const Tensor x = random_tensor({2, 6, 6, 4}, 1, Dtype::bf16), w = random_tensor({3, 3, 3, 4}, 2, Dtype::bf16);
  const auto round = [](const Tensor& t) { return t.to(Dtype::bf16); };
  const auto results = [](const Tensor& a, const Tensor& b, const auto& f) {
    const Tensor in = a.clone().set_requires_grad(), weight = b.clone().set_requires_grad();
    const Tensor y = f(in, weight);
    backward(y, random_tensor(y.shape(), 3, Dtype::bf16).to(y.dtype()));
    return std::array{y.detach(), in.grad(), weight.grad()};
  };
  const auto compare = [&](const auto& f) {
    const auto half = results(x, w, f), whole = results(x.to(Dtype::f32), w.to(Dtype::f32), f);
    for (size_t i = 0; i < half.size(); ++i)
      if (half[i]) CHECK(largest_difference(half[i], round(whole[i])) == 0);
  };
  compare([](const Tensor& a, const Tensor& b) { return convolution(a, b, {}, {.stride = 2, .padding = 1}); });
  compare([](const Tensor& a, const Tensor&) { return average_pool(a, 3, {.padding = 1}); });
  compare([](const Tensor& a, const Tensor&) { return max_pool(a, 3, {.padding = 1}); });
}

TEST_CASE("a window of one pixel is a linear layer; patches are bit-identical to a convolution with equal stride") {
  const Tensor x = random_tensor({2, 6, 9, 3}, 1, Dtype::f32), b = random_tensor({5}, 3, Dtype::f32);
  const Tensor one = random_tensor({5, 1, 1, 3}, 2, Dtype::f32);
  CHECK(largest_difference(convolution(x, one, b), linear(x, one.reshape({5, 3}), b)) == 0);
  const auto all = [&](const auto& f) {
    const Tensor in = x.clone().set_requires_grad(), w = random_tensor({5, 2, 3, 3}, 4, Dtype::f32).set_requires_grad();
    const Tensor y = f(in, w).reshape({2, 9, 5});
    backward(y, random_tensor(y.shape(), 5, Dtype::f32));
    return std::array{y.detach(), in.grad(), w.grad()};
  };
  const auto embedded = all([&](const Tensor&in, const Tensor&w) { return patch_embedding(in, w, b); }),
             convolved = all([&](const Tensor&in, const Tensor&w) {
               return convolution(in, w, b, {.stride = {2, 3}});
             });
  for (size_t i = 0; i < 3; ++i) CHECK(largest_difference(embedded[i], convolved[i]) == 0);
}

TEST_CASE("patches come in reading order, each the pixels of its rows") {
  const Tensor x = Tensor::from({1, 4, 4, 1}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, Dtype::f64);
  CHECK(patches(x, 2).to_vector() == std::vector<double>{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15});
  CHECK(patches(x, {4, 2}).shape() == Shape{1, 2, 8});
}

TEST_CASE("max pool: padding is never the maximum, the first of equal pixels gets the gradient, NaN stays") {
  const Tensor low = Tensor::full({1, 3, 3, 2}, -7, Dtype::f64).set_requires_grad();
  const Tensor y = max_pool(low, 3, {.stride = 2, .padding = 1});
  CHECK(y.shape() == Shape{1, 2, 2, 2});
  CHECK(largest_difference(y, Tensor::full({1, 2, 2, 2}, -7, Dtype::f64)) == 0);
  backward(y, Tensor::full(y.shape(), 1, Dtype::f64));
  std::vector<double> expected(18, 0.0);  // each window's first pixel inside the image: (0, 0), (0, 1), (1, 0), (1, 1)
  for (const size_t pixel : {0, 1, 3, 4}) expected[2 * pixel] = expected[2 * pixel + 1] = 1;
  CHECK(low.grad().to_vector() == expected);
  const Tensor x = Tensor::from({1, 1, 4, 1}, {1, NAN, 2, 5}, Dtype::f64);
  const std::vector<double> pooled = max_pool(x, {1, 2}, {}).to_vector();
  CHECK(std::isnan(pooled[0]));
  CHECK(std::isnan(pooled[1]));
  CHECK(pooled[2] == 5);
}

TEST_CASE("average pool: only pixels of the image count; the global average is the pool of one window") {
  const Tensor ones = Tensor::full({1, 3, 4, 2}, 1, Dtype::f64);
  CHECK(largest_difference(average_pool(ones, 3, {.padding = 1}), ones) <= 1e-15);
  const Tensor x = Tensor::from({1, 2, 2, 1}, {1, 2, 4, 9}, Dtype::f64);
  CHECK(average_pool(x, 3, {.stride = 2, .padding = 1}).to_vector() == std::vector<double>{4});
  CHECK(average_pool(x, {1, 2}, {}).to_vector() == std::vector<double>{1.5, 6.5});
  const Tensor any = random_tensor({2, 5, 3, 4}, 1);
  CHECK(largest_difference(global_average_pool(any), average_pool(any, {5, 3}, {}).reshape({2, 4})) <= 1e-15);
}

TEST_CASE("vision layers save the tensors that their headers state") {
  const auto kept = [](const Tensor& y) { return y.impl()->edge.node->saved.bytes(); };
  const Tensor x = random_tensor({2, 8, 8, 4}, 1, Dtype::f32).set_requires_grad(),
               w = random_tensor({6, 3, 3, 4}, 2, Dtype::f32).set_requires_grad();
  CHECK(kept(convolution(x, w)) == 4 * (2 * 8 * 8 * 4 + 6 * 3 * 3 * 4));
  CHECK(kept(max_pool(x, 2, {.stride = 2})) == 4 * (2 * 4 * 4 * 4));
  CHECK(kept(average_pool(x, 2, {.stride = 2})) == 0);
}

TEST_CASE("modules for images: shapes, names, initial values") {
  Convolution convolve(3, 8, {3, 5}, {.steps = {.stride = 2, .padding = {1, 2}}});
  initialize(convolve, 1);
  CHECK(convolve.weight.value.shape() == Shape{8, 3, 5, 3});
  const double bound = 1 / std::sqrt(45.0), largest = max(abs(convolve.weight.value.reshape({360})), 0).item();
  CHECK(largest <= bound);
  CHECK(largest > 0.9 * bound);
  ForwardPass pass;
  const Tensor x = random_tensor({2, 8, 8, 3}, 1, Dtype::f32);
  CHECK(convolve(x, pass).shape() == Shape{2, 4, 4, 8});
  CHECK(parameters_of(convolve)[1].path == "bias");
  Convolution plain(3, 8, 3, {.bias = false, .weight = kaiming_normal(27)});
  CHECK(count_parameters(plain) == 8 * 27);
  PatchEmbedding embed(3, 4, 16, {});
  initialize(embed, 2);
  CHECK(embed(x, pass).shape() == Shape{2, 4, 16});
  CHECK(MaxPool(2, {.stride = 2})(x, pass).shape() == Shape{2, 4, 4, 3});
  CHECK(AveragePool(3, {.stride = 2, .padding = 1})(x, pass).shape() == Shape{2, 4, 4, 3});
  CHECK(GlobalAveragePool()(x, pass).shape() == Shape{2, 3});
}

TEST_CASE("invalid images, weights and windows have error messages") {
  const Tensor x = random_tensor({2, 5, 6, 3}, 1);
  const auto weight = [](int64_t h, int64_t w, int64_t c) { return random_tensor({4, h, w, c}, 2); };
  const std::string shape = "(2, 5, 6, 3)", axes = "(batch, height, width, channels)";
  const auto refused = [&](const Tensor& w, const WindowSteps& steps) {
    return expect_error([&] { convolution(x, w, {}, steps); }).names("convolution");
  };
  refused(weight(9, 3, 3), {.padding = 1}).value("9 x 3").names(shape).value("7 x 8").names("padding").value("1 x 1");
  refused(weight(3, 3, 3), {.dilation = 3}).value("7 x 7").names(shape).value("5 x 6").names("padding").value("0 x 0");
  refused(weight(3, 3, 2), {}).names(shape).value("3 channels").names("(4, 3, 3, 2)").value(2).offers("last axes");
  refused(weight(3, 3, 3), {.stride = 0}).value("3 x 3").value("stride 0 x 0").value("1 x 1").offers(1).value("0 x 0");
  refused(x.reshape({2, 30, 3}), {}).names("weight").value("(2, 30, 3)").offers("(outputs, height, width, channels)");
  const auto short_bias = [&] { convolution(x, weight(3, 3, 3), random_tensor({3}, 1)); };
  expect_error(short_bias).names("convolution").names("bias").value("(3)").names("weight (4, 3, 3, 3)");
  const auto of_rows = [&] { convolution(x.reshape({2, 30, 3}), weight(3, 3, 3)); };
  expect_error(of_rows).names("convolution").names("input").value("(2, 30, 3)").offers(axes);
  const auto of_rows_too = [&] { patch_embedding(x.reshape({2, 30, 3}), weight(3, 3, 3), {}); };
  expect_error(of_rows_too).names("patches").value("(2, 30, 3)").names("weight (4, 3, 3, 3)").offers("channels");
  const auto of_none = [&] { convolution(x.slice(0, 0), weight(3, 3, 3)); };
  expect_error(of_none).names("convolution").names("input").value("(0, 5, 6, 3)").offers("at least 1");
  for (const Pixels& window : {Pixels(3, 3), Pixels(3, 4), Pixels(4, 3)})
    expect_error([&] { max_pool(x, window, {.padding = 2}); })
        .names("max_pool")
        .names("padding")
        .value("2 x 2")
        .offers("half")
        .names(window);
  const auto dilated = [&] { average_pool(x, 2, {.dilation = 2}); };
  expect_error(dilated).names("average_pool").names("dilation").value("2 x 2").offers(1);
  const auto of_matrix = [&] { global_average_pool(x.reshape({2, 90})); };
  expect_error(of_matrix).names("global_average_pool").names("input").value("(2, 90)").offers(axes);
  expect_error([&] { patches(x, 2); }).names("patches").value("5 x 6").value("2 x 2").offers("resize or crop");
  const auto other_channels = [&] { patch_embedding(x, weight(5, 3, 4)); };
  expect_error(other_channels).names("patches").names(shape).value("(4, 5, 3, 4)").offers("last axes");
}
