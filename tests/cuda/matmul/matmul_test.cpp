// The product kernels: sizes, tiles, transposes, outputs, gaps and split sums.
#include "cuda/matmul/matmul.h"

#include <doctest/doctest.h>

#include "tests/cuda/matmul/products.h"

namespace orrery {
namespace {

void check_transposes(Form f) {
  for (int form = 0; form < 4; ++form) {
    f.transpose_a = form & 1, f.transpose_b = form & 2;
    check_form<float>(f);
    check_form<double>(f);
    check_form<bf16>(f);
    check_form<bf16, float>(f);
    Form split_form = f;
    split_form.bf16_terms = 1 + static_cast<int>((f.m + f.n + form) % 3);
    check_form<float>(split_form);
  }
}

TEST_CASE("products on a GPU: sizes near those of a step and of a tile, in all forms") {
  if (no_gpu()) return;
  for (const Form& f : {Form{1, 1, 1}, Form{1, 64, 16}, Form{5, 3, 17}, Form{64, 64, 32}, Form{63, 65, 33},
                        Form{66, 130, 15}, Form{128, 64, 48}, Form{4, 200, 40}, Form{200, 4, 64}})
    check_transposes(f);
}

TEST_CASE("products on a GPU: large tiles, in all forms") {
  if (no_gpu()) return;
  // As many tiles of 128 x 128 as a GPU has multiprocessors, most of them in a batch.
  check_transposes({.m = 128, .n = 128, .k = 32, .batch = 128});
  if (thread_sanitizer) return;
  check_transposes({.m = 130, .n = 68, .k = 19, .batch = 64});
}

TEST_CASE("products on a GPU: wide tiles of tensor cores, and more rows of tiles than one band has") {
  if (no_gpu() || thread_sanitizer) return;
  for (int form = 0; form < 4; ++form) {
    Form f{.m = 130, .n = 200, .k = 40, .batch = 64, .accumulate = form % 2 == 0, .bias = true, .residual = form > 1};
    f.transpose_a = form & 1, f.transpose_b = form & 2;
    check_form<bf16>(f);
    check_form<bf16, float>(f);
    f.n = 199, f.k = 41, f.offset = 1;
    check_form<bf16>(f);
    f.residual = false, f.columns = {65, 0, 40, 94};
    check_form<bf16>(f);
    check_form<bf16>({.m = 2200, .n = 136, .k = 8, .transpose_a = f.transpose_a, .transpose_b = f.transpose_b});
  }
}

// 64 matrices of one such tile take fewer rounds than 128 half tiles.
TEST_CASE("products on a GPU: tiles of 256 x 192 on tensor cores") {
  if (no_gpu() || thread_sanitizer) return;
  for (int form = 0; form < 4; ++form) {
    Form f{.m = 250, .n = 190, .k = 40, .batch = 64, .accumulate = form % 2 == 0, .bias = true, .residual = form > 1};
    f.transpose_a = form & 1, f.transpose_b = form & 2;
    check_form<bf16>(f);
    check_form<bf16, float>(f);
    f.n = 183, f.k = 73, f.offset = 1;
    check_form<bf16>(f);
    f.residual = false, f.columns = {65, 0, 20, 98};
    check_form<bf16>(f);
  }
}

TEST_CASE("products on a GPU: accumulation, bias and residual, in this order") {
  if (no_gpu()) return;
  for (int form = 0; form < 8; ++form)
    for (const int64_t n : {68, 69})
      check_transposes({.m = 37,
                        .n = n,
                        .k = 20,
                        .batch = 2,
                        .accumulate = (form & 1) != 0,
                        .bias = (form & 2) != 0,
                        .residual = (form & 4) != 0});
}

TEST_CASE("products on a GPU: batches, with one side shared") {
  if (no_gpu()) return;
  for (const bool share_a : {false, true})
    for (const bool share_b : {false, true})
      check_transposes({.m = 11, .n = 70, .k = 18, .batch = 3, .share_a = share_a, .share_b = share_b});
}

TEST_CASE("products on a GPU: several outputs side by side") {
  if (no_gpu()) return;
  for (const bool accumulate : {false, true}) {
    check_transposes({.m = 40, .n = 192, .k = 24, .accumulate = accumulate, .bias = true, .columns = {64, 64, 64}});
    check_transposes({.m = 9, .n = 170, .k = 24, .accumulate = accumulate, .bias = true, .columns = {65, 0, 2, 103}});
    check_transposes({.m = 9, .n = 12, .k = 6, .batch = 2, .accumulate = accumulate, .columns = {4, 8}});
  }
}

TEST_CASE("products on a GPU: rows with gaps between them, and unaligned addresses") {
  if (no_gpu()) return;
  for (const int64_t gap : {0, 4, 7})
    for (const int64_t offset : {0, 1, 4}) check_transposes({.m = 32, .n = 72, .k = 36, .gap = gap, .offset = offset});
  check_transposes({.m = 69, .n = 71, .k = 17, .gap = 3});  // aligned rows that end within 16 bytes
  check_transposes({.m = 70, .n = 66, .k = 18, .batch = 2, .gap = 2, .batch_gap = 1});
}

// The operand changes, against the promise, to show which copy was read.
TEST_CASE("products on a GPU: unaligned rows are copied once while the copies are in use") {
  if (no_gpu()) return;
  constexpr int64_t n = 9;
  DeviceArray<bf16> a(Device::cuda, std::vector<bf16>(n * n, bf16(1.f))), c(Device::cuda, n * n);
  const std::vector<bf16> twos(n * n, bf16(2.f));
  const auto product = [&](bool transpose_a) {
    cuda::Matmul<bf16> p{.m = n,
                         .n = n,
                         .k = n,
                         .batch = 1,
                         .a = {a.data(), n, 0, transpose_a},
                         .b = {a.data(), n, 0, false},
                         .c = {},
                         .accumulate = false,
                         .bias = nullptr,
                         .residual = nullptr};
    p.c[0] = {c.data(), n};
    cuda::multiply(p);
    return c.read()[0];
  };
  {
    const cuda::AlignedCopies kept;
    CHECK(product(false) == 9);
    cuda::copy(a.data(), true, twos.data(), false, n * n * int64_t{sizeof(bf16)});
    CHECK(product(true) == 9);
  }
  CHECK(product(false) == 36);
}

TEST_CASE("products on a GPU: few tiles with a long k use split K") {
  if (no_gpu()) return;
  check_transposes({.m = 20, .n = 36, .k = 1024});
  for (int form = 0; form < 12; ++form)
    check_form<float>({.m = 20,
                       .n = 36,
                       .k = 600,
                       .transpose_a = form % 2 != 0,
                       .transpose_b = form / 2 % 2 != 0,
                       .bf16_terms = 1 + form / 4});
  check_transposes({.m = 5, .n = 70, .k = 1531, .accumulate = true, .bias = true, .residual = true});
  check_transposes({.m = 5, .n = 70, .k = 700, .batch = 3, .accumulate = true, .bias = true, .columns = {69, 1}});
}

TEST_CASE("products on a GPU: sums of A's rows, computed together with gradients of weights") {
  if (no_gpu()) return;
  for (const bool accumulate : {false, true}) {
    const auto check_sums = [&](Form f) {
      f.transpose_a = f.row_sums = true, f.accumulate_row_sums = accumulate, f.accumulate = !accumulate;
      check_form<bf16, float>(f);
    };
    check_sums({.m = 5, .n = 3, .k = 17});
    check_sums({.m = 136, .n = 264, .k = 64});
    check_sums({.m = 69, .n = 71, .k = 50, .gap = 3, .offset = 1});  // unaligned rows
    check_sums({.m = 200, .n = 36, .k = 1024});                      // split K
    check_sums({.m = 3, .n = 5, .k = 0});
    if (thread_sanitizer) continue;
    check_sums({.m = 128 * 128 - 9, .n = 200, .k = 40});  // wide tiles
    check_sums({.m = 128 * 128 - 9, .n = 136, .k = 72});  // tiles of 256 x 192
  }
}

TEST_CASE("products on a GPU: an inner size of 0 gives zeros, and an empty result is valid") {
  if (no_gpu()) return;
  check_form<float>({.m = 3, .n = 5, .k = 0, .batch = 4});
  check_form<double>({.m = 3, .n = 5, .k = 0, .accumulate = true, .bias = true});
  check_form<float>({.m = 0, .n = 5, .k = 3});
  check_form<double>({.m = 3, .n = 0, .k = 3});
}

}  // namespace
}  // namespace orrery
