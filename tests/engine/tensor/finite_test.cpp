#include "engine/tensor/finite.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "engine/types/check.h"

using namespace orrery;

TEST_CASE("finite: one non-finite number anywhere in a tensor of any dtype is found") {
  const int64_t n = 200'001;  // several tasks, and not a multiple of a vector
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
    CAPTURE(name(dtype));
    const double largest = dtype == Dtype::f64 ? std::numeric_limits<double>::max() : 3e38;
    std::vector<double> numbers(static_cast<size_t>(n), 0.5);
    numbers[5] = largest, numbers[6] = -largest, numbers[7] = 1e-310;
    CHECK(all_finite(Tensor::from({n}, numbers, dtype)));
    for (const double wrong : {double(NAN), -double(NAN), double(INFINITY), -double(INFINITY)})
      for (const size_t at : {size_t{0}, size_t{65'535}, size_t{65'536}, static_cast<size_t>(n) - 1}) {
        const double before = std::exchange(numbers[at], wrong);
        CHECK(!all_finite(Tensor::from({n}, numbers, dtype)));
        numbers[at] = before;
      }
  }
  CHECK(all_finite(Tensor::full({3}, 2147483647, Dtype::i32)));
  CHECK(all_finite(Tensor::zeros({0, 4})));
}

TEST_CASE("finite: tensor stats count each kind and have the first index and the range of finite values") {
  const Tensor x = Tensor::from({2, 4}, {1, -2, NAN, 3e38, INFINITY, NAN, -INFINITY, 0.5});
  const TensorStats stats = stats_of(x);
  CHECK(stats.nan == 2);
  CHECK(stats.plus_infinity == 1);
  CHECK(stats.minus_infinity == 1);
  CHECK(stats.first == 2);
  CHECK(stats.smallest == -2);
  CHECK(stats.largest == doctest::Approx(3e38));
  CHECK(text(stats) ==
        "f32 (2, 4) has 2 NaN, 1 inf and 1 -inf, the first at (0, 2); finite values: 4, between -2 and 3e+38");
  CHECK(stats == stats_of(x));
  CHECK(!(stats == stats_of(Tensor::zeros({2, 4}))));
  CHECK(text(stats_of(Tensor::full({}, NAN))) ==
        "f32 () has 1 NaN, 0 inf and 0 -inf, the first at (); no value is finite");
  CHECK(text(stats_of(Tensor::from({2}, {1, 2}, Dtype::bf16))) == "bf16 (2) between 1 and 2");
  CHECK(index_text({2, 3, 4}, 17) == "(1, 1, 1)");
}
