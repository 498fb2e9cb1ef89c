// Activation patching by head: this example runs with one head's value of the other example, at all positions.
//   output        head_output (TransformerLens: hook_z), before W_o
//   query, key    as they enter the scores (hook_q, hook_k; rotated): with one of them, the scores are those of this
//                 example's keys with the other's queries, or the reverse
//   value         what the head attends to (hook_v): its weights stay this example's
// A key or value that several query heads share is patched once, as one head of its map: of a chosen head, the one
// that it reads. The result is the fraction of the difference between the examples that this restores
// (models/inspection/base/patching.h): a head that restores it by its output carries the difference, and its query, key
// or value restores it too if the difference enters there (Wang et al. 2022, arXiv:2211.00593; Heimersheim and Nanda
// 2024, arXiv:2404.15255). Fractions of several heads do not add up, because later heads depend on earlier ones. A head
// with equal values in both examples is not run: its fraction is 0.
#include <algorithm>

#include "engine/ops/ops.h"
#include "engine/types/usage_error.h"
#include "models/inspection/base/head_map.h"
#include "models/inspection/base/patching.h"

namespace orrery::models {
namespace {

struct Kind {
  const char *hook, *name, *title;
};
constexpr Kind kinds[] = {{"head_output", "output", "Patching each head's output"},
                          {"query", "query", "Patching each head's queries"},
                          {"key", "key", "Patching each head's keys"},
                          {"value", "value", "Patching each head's values"}};

using Values = std::vector<std::vector<Captured>>;  // per kind and attention: (1, T, H, D)

Values values_of(const InspectedExample& example) {
  std::vector<std::string> names;
  for (const Kind& kind : kinds) names.emplace_back(kind.hook);
  return capture(example, names);
}

// Returns the restored fraction of each head, or of the one that query head `head` has or reads.
HeadRow patched(const InspectedExample& example, const RowDifference& at, const char* hook, const Captured& own,
                const Captured& other, int64_t head, int64_t query_heads) {
  check_usage(own.value.shape() == other.value.shape(), "inspect: the example and --patch_from have ",
              own.value.size(1), " and ", other.value.size(1), " positions in ", own.path,
              ", but patching requires equal numbers; give a --patch_from with as many tokens");
  HeadRow row{own.path, {}};
  const int64_t heads = own.value.size(2), chosen = head * heads / query_heads;
  for (int64_t i = 0; i < heads; ++i) {
    const auto numbers = [i](const Tensor& value) { return slice(value, 2, i, i + 1).to_vector(); };
    if (head >= 0 && chosen != i)
      row.values.push_back(NAN);
    else if (numbers(own.value) == numbers(other.value))
      row.values.push_back(0);
    else
      row.values.push_back(restored_fraction(example, at, own.path + "." + hook, {2, i, i + 1}, other.value));
  }
  return row;
}

void analyze(std::vector<View>& views, const InspectedExample& example, const AnalysisSettings& s) {
  if (!s.patch_from) return;
  check_patchable(example, *s.patch_from);
  const Values own = values_of(example), others = values_of(*s.patch_from);
  if (own[0].empty()) return;
  const std::vector<size_t> layers = chosen_layers(own[0].size(), s.layer, "attention modules");
  for (const size_t layer : layers) check_head(s.head, own[0][layer].value.size(2), own[0][layer].path);
  const std::vector<RowDifference> all = differences(example, *s.patch_from, s);
  if (all[0].size() < min_difference) {
    views.push_back(no_difference_view("Head patching", example, all, s.top));
    return;
  }
  size_t done = 0;
  for (size_t i = 0; i < std::size(kinds); ++i) {
    std::vector<HeadRow> rows;
    std::vector<std::pair<std::string, double>> metrics;
    for (const size_t layer : layers) {
      const int64_t query_heads = own[0][layer].value.size(2);
      rows.push_back(patched(example, all[0], kinds[i].hook, own[i][layer], others[i].at(layer), s.head, query_heads));
      for (size_t head = 0; head < rows.back().values.size(); ++head)
        metrics.emplace_back(text("head_patching/", kinds[i].name, "/", rows.back().path, ".", head),
                             rows.back().values[head]);
      s.report_progress("patched heads", ++done, std::size(kinds) * layers.size());
    }
    MapView map = head_map("fraction restored", rows, "not patched");
    views.push_back({"Head patching", text("head_patching/", kinds[i].name), kinds[i].title,
                     text("Fraction of the difference between the examples that is restored if one head's ",
                          kinds[i].name, " is taken from the other example, at all positions.  The difference is in ",
                          describe(example, all[0]), "."),
                     std::move(map), false, std::move(metrics)});
  }
}

REGISTER_ANALYSIS(head_patching,
                  {.name = "head_patching",
                   .description = "the difference between two examples that is restored by the output, queries, keys "
                                  "or values of one head of the other (--patch_from)",
                   .analyze = analyze});

}  // namespace
}  // namespace orrery::models
