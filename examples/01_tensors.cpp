// Tensors: dense arrays with a shape, an element type and a device. Each result is checked: a wrong
// value ends the program with an error.
#include <cmath>
#include <iostream>

#include "engine/ops/ops.h"
#include "engine/types/check.h"

using namespace orrery;

namespace {

void create_tensors() {
  const Tensor a = Tensor::from(Shape{2, 3}, {1, 2, 3, 4, 5, 6});
  std::cout << "a = " << a << "\n";
  check(a.numel() == 6 && a.size(0) == 2 && a.size(-1) == 3, "01: wrong shape: ", a.shape());  // -1 is the last axis
  check(a.dtype() == Dtype::f32 && a.device() == Device::cpu, "01: the default must be f32 on the CPU");

  // A Tensor is a handle: a copy shares the elements, clone() copies them.
  const Tensor same = a, other = a.clone();
  a.mutable_data<float>()[0] = 10;
  check(same.to_vector()[0] == 10 && other.to_vector()[0] == 1, "01: copies must share values, clones must not");
  check(!Tensor().defined(), "01: a default-constructed Tensor must be undefined");
}

void arithmetic(Device device) {
  const Tensor a = Tensor::from(Shape{2, 3}, {1, 2, 3, 4, 5, 6}).to(device);
  const Tensor row = Tensor::from(Shape{3}, {10, 20, 30}).to(device),
               column = Tensor::from(Shape{2, 1}, {100, 200}).to(device);
  // Shapes are aligned at their last axes; an axis of size 1 is repeated (broadcasting).
  const Tensor b = a + row + column;
  std::cout << "a + row + column = " << b << "\n";
  check(b.to_vector() == std::vector<double>{111, 122, 133, 214, 225, 236}, "01: wrong result of broadcasting");

  // (2, 3) x (3, 2); the transpose of the second operand is a flag, not a copy.
  const Tensor c = matmul(a, a, {.b = true});
  std::cout << "a a^T = " << c << "\n";
  check(c.to_vector() == std::vector<double>{14, 32, 32, 77}, "01: wrong result of matmul");
}

void layout() {
  const Tensor a = Tensor::from(Shape{2, 3}, {1, 2, 3, 4, 5, 6});
  // Elements are contiguous and row-major, so a reshape and the rows of a leading slice are views.
  const Tensor flat = a.reshape(Shape{6}), second = a[1];
  check(flat.raw() == a.raw(), "01: reshape must not copy");
  check(second.raw() == a.data<float>() + 3, "01: a row must share its matrix's memory");
  // Any other order is a copy.
  const Tensor t = transpose(a);
  std::cout << "a^T = " << t << "\n";
  check(t.shape() == Shape{3, 2} && t.to_vector() == std::vector<double>{1, 4, 2, 5, 3, 6}, "01: wrong transpose");
}

void softmax_by_hand(Device device) {
  const Tensor scores = Tensor::from(Shape{2, 3}, {1, 2, 3, 1000, 1000, 1000}).to(device);
  const Tensor exponentials = exp(scores - max(scores, -1, true));  // without the maximum, exp(1000) is infinite
  const Tensor weights = exponentials / sum(exponentials, {-1}, true);
  std::cout << "softmax = " << weights << "\n";
  for (const double total : sum(weights, {-1}).to_vector())
    check(std::abs(total - 1) < 1e-6, "01: rows must sum to 1, not ", total);
}

void embedding_lookup(Device device) {
  // An embedding is this lookup: row t of a table for each token t.
  const Tensor table = Tensor::from(Shape{4, 2}, {0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5}).to(device);
  const std::vector<int32_t> tokens = {3, 1, 1};
  const Tensor rows = index_select(table, Tensor::from(Shape{3}, tokens).to(device));
  std::cout << "rows 3, 1, 1 = " << rows << "\n";
  check(rows.to_vector() == std::vector<double>{3, 3.5, 1, 1.5, 1, 1.5}, "01: wrong result of index_select");
}

void element_types(Device device) {
  // bf16 is the upper half of an f32: same range, 8 bits of precision. f64 is for strict checks.
  const Tensor x = Tensor::from(Shape{2}, {1.0 / 3, 1e30}).to(device);
  const std::vector<double> exact = x.to_vector(), rounded = x.to(Dtype::bf16).to_vector();
  for (size_t i = 0; i < 2; ++i) {
    const double error = std::abs(rounded[i] / exact[i] - 1);
    std::cout << exact[i] << " in bf16: " << rounded[i] << ", relative error " << error << "\n";
    check(error < 1.0 / 256, "01: the relative error of bf16 must be below 1/256, not ", error);
  }
}

void errors() {
  // A mistake throws an error whose message has the operation, the values and the fix.
  try {
    matmul(Tensor::zeros(Shape{4, 16}), Tensor::zeros(Shape{32, 16}));
  } catch (const Error& error) {
    std::cout << "error: " << error.what() << "\n";
    return;
  }
  fail("01: a product of (4, 16) and (32, 16) must be an error");
}

}  // namespace

int main(int argc, char** argv) {  // 01_tensors [cpu or cuda]
  const Device device = parse_device(argc > 1 ? argv[1] : "cpu");
  create_tensors();
  arithmetic(device);
  layout();
  softmax_by_hand(device);
  embedding_lookup(device);
  element_types(device);
  errors();
  std::cout << "all checks passed; next: 02_differentiation.cpp\n";
}
