// Rounding of f32 sums on a device, for several lengths; the bounds are those of a CPU.
#include "tests/support/long_sums.h"

using namespace orrery;
using namespace orrery::testing;

TEST_CASE("long sums: softmax attention on a device, over any number of keys") {
  for (const int64_t keys : {64, 1024, 8192}) check_long_softmax(Device::cuda, keys);
}
TEST_CASE("long sums: linear attention on a device, over any number of tokens") {
  for (const int64_t tokens : {64, 2048}) check_long_linear_attention(Device::cuda, tokens);
}
TEST_CASE("long sums: rows, columns and losses on a device") {
  for (const int64_t n : {1000, 100000}) check_long_rows_and_columns(Device::cuda, n);
}
TEST_CASE("long sums: layer and RMS normalization of rows on a device") {
  for (const int64_t n : {100, 20000}) check_long_norms(Device::cuda, n);
}
TEST_CASE("long sums: the norm of a gradient on a device") {
  for (const int64_t n : {1000, 100000}) check_long_gradient(Device::cuda, n);
}
TEST_CASE("long sums: equal terms on a device") {
  for (const int64_t n : {1'000, 100'000}) check_long_equal_sums(Device::cuda, n);
}
TEST_CASE("long sums: rows added to one row of a table on a device") {
  for (const int64_t n : {100, 20000}) check_long_row_of_table(Device::cuda, n);
}
TEST_CASE("long sums: the gradient of a span on a device") {
  for (const int64_t queries : {64, 1024}) check_long_span_gradient(Device::cuda, queries);
}
TEST_CASE("long sums: the gradients of relative positions on a device") {
  for (const int64_t queries : {64, 1024}) check_long_distance_gradients(Device::cuda, queries);
}
