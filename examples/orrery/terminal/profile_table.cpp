#include "examples/orrery/terminal/profile_table.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "examples/orrery/terminal/help_text.h"
#include "examples/orrery/terminal/table.h"
#include "examples/orrery/terminal/timing.h"

namespace orrery::program {

MeasuredPeak measure_peak() {
  const NoGrad guard;
  constexpr int64_t size = 1536, floats = 1 << 24;  // the copy is larger than the caches
  const Tensor a = Tensor::full(Shape{size, size}, 1.0 / 3), b = Tensor::full(Shape{size, size}, 1.0 / 7);
  const Tensor source = Tensor::full(Shape{floats}, 1);
  const double product = measure([&] { matmul(a, b); }, 0.4).best, copy = measure([&] { source.clone(); }, 0.4).best;
  return {2.0 * size * size * size / product, 2.0 * sizeof(float) * floats / copy};
}

std::string profile_table(const Profile& profile, const MeasuredPeak& peak) {
  std::vector<Profile::const_iterator> order;
  double seconds = 0;
  for (auto it = profile.begin(); it != profile.end(); ++it) order.push_back(it), seconds += it->second.seconds;
  std::stable_sort(order.begin(), order.end(), [](auto a, auto b) { return a->second.seconds > b->second.seconds; });
  Table table({"operation", "direction", "calls", "time (ms)", "fraction", "rate", "", "multiply-adds (G)",
               "saved (MB)", "fraction of peak"},
              "llrrrrlrrr");
  ProfileRow rest;
  for (const auto& it : order) {
    const ProfileRow& row = it->second;
    if (row.seconds < 1e-3 * seconds) {  // reshapes and similar, which copy nothing
      rest.calls += row.calls, rest.seconds += row.seconds, rest.saved_bytes += row.saved_bytes;
      continue;
    }
    const double time = std::max(row.seconds, 1e-12);
    const double flops_fraction = row.flops / time / peak.flops, bytes_fraction = row.bytes / time / peak.bytes;
    const bool arithmetic = flops_fraction >= bytes_fraction;
    const bool counted = row.flops > 0 || row.bytes > 0;
    table.add({it->first.first, it->first.second, with_commas(row.calls), fixed(row.seconds * 1e3, 1),
               fixed(100 * row.seconds / std::max(seconds, 1e-12), 1) + " %",
               counted ? fixed((arithmetic ? row.flops : row.bytes) / time / 1e9, 1) : "-",
               counted ? (arithmetic ? "GFLOP/s" : "GB/s") : "", row.flops > 0 ? fixed(row.flops / 2e9, 2) : "-",
               megabytes(static_cast<double>(row.saved_bytes)),
               counted ? fixed(100 * std::max(flops_fraction, bytes_fraction), 0) + " %" : "-"});
  }
  if (rest.calls > 0)
    table.add({"(others)", "", with_commas(rest.calls), fixed(rest.seconds * 1e3, 1),
               fixed(100 * rest.seconds / std::max(seconds, 1e-12), 1) + " %", "-", "", "-",
               megabytes(static_cast<double>(rest.saved_bytes)), "-"});
  const auto line = [](const std::string& text) { return broken_line(text, STDERR_FILENO); };
  return line("profile: totals over all calls of the run; saved: memory saved for backward, summed over the calls") +
         table.print(2, STDERR_FILENO) +
         line(text("  measured peak: ", fixed(peak.flops / 1e9, 1), " GFLOP/s (product of 1536 x 1536, f32), ",
                   fixed(peak.bytes / 1e9, 1), " GB/s (copy of 64 MiB)"));
}

}  // namespace orrery::program
