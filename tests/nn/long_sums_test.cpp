// Rounding of f32 sums on a CPU at different lengths.
#include "tests/support/long_sums.h"

using namespace orrery;
using namespace orrery::testing;

TEST_CASE("long sums: softmax attention has the rounding of a tile, over any number of keys") {
  for (const int64_t keys : {64, 512, 2048, 8192}) check_long_softmax(Device::cpu, keys);
}
TEST_CASE("long sums: linear attention has the rounding of a tile, over any number of tokens") {
  for (const int64_t tokens : {64, 512, 2048, 8192}) check_long_linear_attention(Device::cpu, tokens);
}
TEST_CASE("long sums: rows, columns and losses of any length") {
  for (const int64_t n : {1000, 10000, 100000, 1000000}) check_long_rows_and_columns(Device::cpu, n);
}
TEST_CASE("long sums: layer and RMS normalization of rows of any length, forward and backward") {
  for (const int64_t n : {100, 10000, 100000}) check_long_norms(Device::cpu, n);
}
TEST_CASE("long sums: the norm of a gradient of any length") {
  for (const int64_t n : {1000, 100000, 1000000}) check_long_gradient(Device::cpu, n);
}
TEST_CASE("long sums: any number of equal terms") {
  for (const int64_t n : {1'000, 100'000, 10'000'000}) check_long_equal_sums(Device::cpu, n);
}
TEST_CASE("long sums: any number of rows added to one row of a table") {
  for (const int64_t n : {100, 10000, 100000, 400000}) check_long_row_of_table(Device::cpu, n);
}
TEST_CASE("long sums: the gradient of a span, over any number of queries") {
  for (const int64_t queries : {64, 1024, 8192}) check_long_span_gradient(Device::cpu, queries);
}
TEST_CASE("long sums: the gradients of relative positions, over any number of queries") {
  for (const int64_t queries : {64, 1024, 8192}) check_long_distance_gradients(Device::cpu, queries);
}
