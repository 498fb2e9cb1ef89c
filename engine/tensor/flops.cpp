#include "engine/tensor/flops.h"

#include <atomic>

namespace orrery {
namespace {
std::atomic<double> all_flops = 0;  // whole numbers below 2^53: the sum does not depend on the order
}  // namespace

void count_flops(double flops) { all_flops += flops; }
double flops_counted() { return all_flops; }

}  // namespace orrery
