// Input-output curve of each normalization, element by element, before its weight and bias. In
// layer normalization one token's elements form a straight line, and all tokens' a tanh-like curve:
// tokens with large elements have larger divisors (Zhu et al. 2025, arXiv:2503.10622, figure 2).
//
//   y' = (y - bias) / weight                       elements whose weight is 0 are left out
//   straight     fraction of the variance of y' that the best line  a x + b  explains
//   like tanh    fraction that the best  a tanh(g x) + b  explains, and its g
//   alpha        of dynamic normalizations; training moves it near 1 / std of the input (same paper, figure 8)
//   saturated    the metric `saturation` (`orrery list metric`): fraction of inputs with |alpha x| > 2
#include <algorithm>

#include "engine/autograd/autograd.h"
#include "engine/types/format.h"
#include "models/inspection/base/analysis.h"
#include "models/inspection/base/normalizations.h"
#include "models/metrics/base/model_metric.h"

namespace orrery::models {
namespace {

constexpr int64_t bins = 48;

struct Curve {
  std::string path, kind;
  std::vector<double> x, y;  // per element
  double alpha = NAN, saturation = NAN;
};

// Returns the parameter `name`, one number or one per channel; empty if it does not exist.
std::vector<double> parameter_of(nn::Module& module, const std::string& name) {
  for (const nn::NamedParameter& p : nn::parameters_of(module))
    if (p.path == name) return p.parameter->value.to_vector();
  return {};
}

void set_output(Curve& curve, nn::Module& module, const std::vector<double>& y) {
  const std::vector<double> weight = parameter_of(module, "weight"), bias = parameter_of(module, "bias");
  std::vector<double> x;
  for (size_t i = 0; i < y.size(); ++i) {
    const double w = weight.empty() ? 1 : weight[i % weight.size()], b = bias.empty() ? 0 : bias[i % bias.size()];
    const double normalized = (y[i] - b) / w;
    if (std::isfinite(normalized) && std::isfinite(curve.x[i])) x.push_back(curve.x[i]), curve.y.push_back(normalized);
  }
  curve.x = std::move(x);
}

std::vector<Curve> curves_of(const InspectedExample& example) {
  const std::vector<NormalizationModule> found = normalizations_of(example.model());
  if (found.empty()) return {};
  std::vector<std::string> patterns;
  for (const NormalizationModule& each : found)
    patterns.push_back(each.path + ".input"), patterns.push_back(each.path + ".output");
  std::vector<Curve> curves;
  std::vector<double> input;
  capture_values(example, patterns, [&](const std::string& path, const std::string& name, const Tensor& value) {
    if (name == "input") {
      input = value.to_vector();
      return;
    }
    const auto at = std::find_if(found.begin(), found.end(), [&](const auto& each) { return each.path == path; });
    curves.push_back({path, at->kind, std::move(input), {}});
    set_output(curves.back(), *at->module, value.to_vector());
    if (const std::vector<double> alpha = parameter_of(*at->module, "alpha"); alpha.size() == 1)
      curves.back().alpha = alpha[0];
  });
  MetricRow row;
  const NoGrad guard;
  collect_metrics(row, select_metrics("saturation"), example.model(), [&] { example.run(); });
  for (Curve& curve : curves)
    if (const auto fraction = row.find("saturation/" + curve.path); fraction != row.end())
      curve.saturation = fraction->second;
  std::erase_if(curves, [](const Curve& curve) { return curve.x.empty(); });
  return curves;
}

double mean_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double each : x) sum += each;
  return sum / static_cast<double>(x.size());
}
double deviation_of(const std::vector<double>& x) {
  const double mean = mean_of(x);
  double sum = 0;
  for (const double each : x) sum += (each - mean) * (each - mean);
  return std::sqrt(sum / static_cast<double>(x.size()));
}

// Returns the fraction of y's variance that the best a f(x) + b explains; NaN if one is constant.
double explained(const Curve& curve, const auto& f) {
  double su = 0, sy = 0, suu = 0, syy = 0, suy = 0;
  const auto n = static_cast<double>(curve.x.size());
  const double middle = mean_of(curve.y);
  for (size_t i = 0; i < curve.x.size(); ++i) {
    const double u = f(curve.x[i]), y = curve.y[i] - middle;
    su += u, sy += y, suu += u * u, syy += y * y, suy += u * y;
  }
  const double uu = suu - su * su / n, yy = syy - sy * sy / n, uy = suy - su * sy / n;
  return uu > 0 && yy > 0 ? std::min(uy * uy / (uu * yy), 1.0) : NAN;
}

// Returns an evenly spaced sample, enough for three digits of a fraction.
Curve sample_of(const Curve& curve) {
  constexpr size_t max_elements = 20000;
  const size_t step = curve.x.size() / max_elements + 1;
  Curve sample{curve.path, curve.kind, {}, {}};
  for (size_t i = 0; i < curve.x.size(); i += step) sample.x.push_back(curve.x[i]), sample.y.push_back(curve.y[i]);
  return sample;
}

struct Tanh {
  double fraction = NAN, slope = NAN;
};
// Searches slopes from 1/50 to 20 over the deviation of x, then refines around the best slope.
Tanh best_tanh(const Curve& curve) {
  Tanh best;
  const auto try_slope = [&](double slope) {
    const double fraction = explained(curve, [&](double x) { return std::tanh(slope * x); });
    if (!(fraction <= best.fraction)) best = {fraction, slope};
  };
  const double unit = 1 / deviation_of(curve.x);
  double ratio = 1.2;
  for (double factor = 0.02; factor < 20; factor *= ratio) try_slope(factor * unit);
  for (int i = 0; i < 12; ++i) {
    const double middle = best.slope;
    ratio = std::sqrt(ratio), try_slope(middle * ratio), try_slope(middle / ratio);
  }
  return best;
}

// Bins of equal width from the minimum to the maximum.
class Bins {
 public:
  explicit Bins(const std::vector<double>& x) {
    const auto [lowest, highest] = std::minmax_element(x.begin(), x.end());
    low_ = *lowest, step_ = (*highest - *lowest) / static_cast<double>(bins);
  }
  int64_t of(double x) const {
    return step_ > 0 ? std::clamp(static_cast<int64_t>((x - low_) / step_), int64_t{0}, bins - 1) : 0;
  }
  double middle(int64_t bin) const { return low_ + (static_cast<double>(bin) + 0.5) * step_; }

 private:
  double low_, step_;
};

void add_map(std::vector<View>& views, const Curve& curve) {
  const Bins of_x(curve.x), of_y(curve.y);
  std::vector<double> counts(bins * bins);
  for (size_t i = 0; i < curve.x.size(); ++i)
    counts[static_cast<size_t>((bins - 1 - of_y.of(curve.y[i])) * bins + of_x.of(curve.x[i]))] += 1;
  for (double& count : counts) count = count > 0 ? std::log10(1 + count) : NAN;
  MapView map{.quantity = "log10(1 + count)", .rows = {}, .columns = {}, .values = {}};
  map.axes = {"output", "input"}, map.none = "no element";
  for (int64_t bin = 0; bin < bins; ++bin) {
    map.rows.push_back(significant(of_y.middle(bins - 1 - bin), 3));
    map.columns.push_back(significant(of_x.middle(bin), 3));
  }
  map.values = Tensor::from(Shape{1, bins, bins}, counts, Dtype::f64);
  views.push_back({"Normalization curves", "normalization_curves/" + curve.path, curve.path + " (" + curve.kind + ")",
                   "Number of elements by input (from the left) and output (from below).", std::move(map), true});
}

LineView::Line mean_line(const Curve& curve) {
  const Bins of_x(curve.x);
  std::vector<double> sums(bins), counts(bins);
  for (size_t i = 0; i < curve.x.size(); ++i) {
    const auto bin = static_cast<size_t>(of_x.of(curve.x[i]));
    sums[bin] += curve.y[i], counts[bin] += 1;
  }
  LineView::Line line{curve.path, {}, {}};
  for (int64_t bin = 0; bin < bins; ++bin)
    if (const auto at = static_cast<size_t>(bin); counts[at] > 0)
      line.x.push_back(of_x.middle(bin)), line.y.push_back(sums[at] / counts[at]);
  return line;
}

void analyze_curves(std::vector<View>& views, const InspectedExample& example, const AnalysisSettings& s) {
  const std::vector<Curve> curves = curves_of(example);
  if (curves.empty()) return;
  const bool dynamic =
      std::any_of(curves.begin(), curves.end(), [](const Curve& curve) { return !std::isnan(curve.saturation); });
  TableView table{{"normalization", "kind", "1 / std of input", "straight", "like tanh", "tanh slope"}, "llrrrr", {}};
  if (dynamic) table.columns.insert(table.columns.end(), {"alpha", "saturated"}), table.alignment += "rr";
  LineView lines{"input", "mean output", {}};
  std::vector<View> maps;
  std::vector<std::pair<std::string, double>> metrics;
  const auto number = [](double x, int digits) { return std::isnan(x) ? std::string("-") : significant(x, digits); };
  for (const size_t at : chosen_layers(curves.size(), s.layer, "normalization modules")) {
    const Curve& curve = curves[at];
    const Curve sample = sample_of(curve);
    const Tanh tanh = best_tanh(sample);
    const double steepness = 1 / deviation_of(curve.x), straight = explained(sample, [](double x) { return x; });
    table.rows.push_back({curve.path, curve.kind, number(steepness, 4), number(straight, 4), number(tanh.fraction, 4),
                          number(tanh.slope, 4)});
    for (const auto& [name, value] : {std::pair("inverse_deviation", steepness), std::pair("straight", straight),
                                      std::pair("like_tanh", tanh.fraction), std::pair("slope", tanh.slope),
                                      std::pair("alpha", curve.alpha), std::pair("saturated", curve.saturation)})
      metrics.emplace_back(text("normalization_curves/", name, "/", curve.path), value);
    if (dynamic) {
      const bool has_alpha = !std::isnan(curve.saturation);
      table.rows.back().push_back(has_alpha && std::isnan(curve.alpha) ? "fixed" : number(curve.alpha, 4));
      table.rows.back().push_back(number(curve.saturation, 3));
    }
    lines.lines.push_back(mean_line(curve));
    add_map(maps, curve);
  }
  std::string caption =
      "Fractions of the variance of the output elements, before weight and bias, that a straight line and a tanh "
      "explain.";
  if (dynamic) caption += "  Saturated: fraction of the inputs with |alpha x| > 2.";
  views.push_back({"Normalization curves", "", "Input-output curves of normalizations", caption, std::move(table),
                   false, std::move(metrics)});
  views.push_back({"Normalization curves", "normalization_curves/means", "Mean output by input",
                   "Before weight and bias.", std::move(lines)});
  std::move(maps.begin(), maps.end(), std::back_inserter(views));
}

REGISTER_ANALYSIS(normalization_curves,
                  {.name = "normalization_curves",
                   .description = "input-output curve of each normalization, and its fits by a line and a tanh; "
                                  "alpha and 1 / std",
                   .analyze = analyze_curves});

}  // namespace
}  // namespace orrery::models
