#include "models/inspection/base/patching.h"

#include <algorithm>

#include "engine/types/format.h"
#include "engine/types/usage_error.h"
#include "models/inspection/base/answers.h"

namespace orrery::models {
namespace {

double measure(const Tensor& logits, const RowDifference& at) {
  const std::vector<double> z = logits[at.row].to_vector();
  const double others = z[static_cast<size_t>(at.others)];
  return at.own == at.others ? others : others - z[static_cast<size_t>(at.own)];
}

// Returns the rows, without m, that the settings choose and that have targets.
std::vector<RowDifference> rows_with_targets(const InspectedExample& example, const Tensor& here,
                                             const InspectedExample& other, const Tensor& there,
                                             const AnalysisSettings& s) {
  check_usage(s.position < here.size(0), "inspect: --position=", s.position,
              " is out of range; positions have numbers from 0 to ", here.size(0) - 1);
  const std::vector<int32_t> own = targets_of(example, here).by_row, others = targets_of(other, there).by_row;
  std::vector<RowDifference> all;
  for (int64_t row = 0; row < here.size(0); ++row) {
    const auto i = static_cast<size_t>(row);
    if ((s.position < 0 || row == s.position) && own[i] >= 0 && others[i] >= 0)
      all.push_back({row, own[i], others[i], 0, 0});
  }
  check(!all.empty(), "inspect: ", s.position < 0 ? text("no position") : text("--position=", s.position),
        s.position < 0
            ? " has a target in both examples; give longer examples"
            : " does not have a target in both examples; choose an earlier position, or give longer examples");
  return all;
}

std::vector<RowDifference> measured_rows(const InspectedExample& example, const Tensor& here,
                                         const InspectedExample& other, const Tensor& there,
                                         const AnalysisSettings& s) {
  if (s.answer.empty() && s.against.empty()) return rows_with_targets(example, here, other, there, s);
  const Answer at = answers_of(example, here, s).rows.back();
  return {{at.row, at.against, at.answer, 0, 0}};
}

}  // namespace

void check_patchable(const InspectedExample& example, const InspectedExample& other) {
  check(&example.model() == &other.model(), "inspect: patching requires two examples of one model");
}

std::vector<RowDifference> differences(const InspectedExample& example, const InspectedExample& other,
                                       const AnalysisSettings& s) {
  const Tensor here = example.run(), there = other.run();
  check(here.shape() == there.shape(), "inspect: the example and --patch_from have ", here.size(0), " and ",
        there.size(0), " rows of logits, but patching requires equal numbers; give a --patch_from with as many tokens");
  std::vector<RowDifference> all = measured_rows(example, here, other, there, s);
  for (RowDifference& at : all) at.here = measure(here, at), at.there = measure(there, at);
  std::stable_sort(all.begin(), all.end(),
                   [](const RowDifference& a, const RowDifference& b) { return a.size() > b.size(); });
  return all;
}

std::string describe(const InspectedExample& example, const RowDifference& at) {
  const std::string what = at.own == at.others ? text("the logit of '", example.target_name(at.own), "'")
                                               : text("the logit of '", example.target_name(at.others),
                                                      "' minus that of '", example.target_name(at.own), "'");
  return text(what, " at position ", at.row, " (", significant(at.here, 4), " here, ", significant(at.there, 4),
              " in the other example)");
}

View no_difference_view(const std::string& group, const InspectedExample& example, std::span<const RowDifference> all,
                        int64_t max_count) {
  TableView table{{"position", "target here", "there", "m here", "there", "difference"}, "rllrrr", {}};
  for (const RowDifference& at : all.first(std::min(all.size(), static_cast<size_t>(std::max<int64_t>(max_count, 1)))))
    table.rows.push_back({std::to_string(at.row), example.target_name(at.own), example.target_name(at.others),
                          significant(at.here, 4), significant(at.there, 4), signed_fixed(at.there - at.here, 4)});
  return {group, "", "Patching from the other example: no difference to restore",
          text("The model predicts the same for both examples: the largest difference, in ", describe(example, all[0]),
               ", is below ", min_difference, ", so patching cannot restore any."),
          std::move(table)};
}

double restored_fraction(const InspectedExample& example, const RowDifference& at, const std::string& hook,
                         AxisRange range, const Tensor& others) {
  const Tensor logits = run_edited(
      example,
      {{.hook = hook, .region = {range}, .operation = ValueEdit::Operation::set_to_other, .other = others}});
  return (measure(logits, at) - at.here) / (at.there - at.here);
}

}  // namespace orrery::models
