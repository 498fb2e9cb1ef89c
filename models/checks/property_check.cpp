#include "models/checks/property_check.h"

#include <algorithm>
#include <cmath>

#include "engine/types/check.h"

namespace orrery::models {
namespace {

class PropertyCheck {
 public:
  explicit PropertyCheck(const nn::Activation& f) : f_(f), info_(f.info()), p_(f.initial_parameters()) {
    for (int i = 0; i <= 384; ++i) grid_.push_back(-12 + i / 16.0);
  }
  std::vector<std::string> errors() {
    for (size_t k = 0; k < p_.size(); ++k)
      if (!std::isfinite(p_[k]))
        errors_.push_back(text(info_.name, ": ", info_.positive ? "positive" : "parameters", ": ", info_.parameters[k],
                               " starts at p = ", p_[k], info_.positive ? ", but softplus(p) must be positive" : ""));
    if (!errors_.empty()) return errors_;
    zero_below_zero();
    homogeneous();
    derivative_from_output();
    constants();
    if (!has_defaults()) return errors_;
    limits();
    stated_kinks();
    unstated_kinks();
    return errors_;
  }

 private:
  double value(double x) const { return f_.value(x, p_); }
  double derivative(double x) const { return f_.derivative(x, p_); }
  template <class Stated>
  void add_error(const char* property, const Stated& stated, double x, double found, const char* what = "F") {
    errors_.push_back(text(info_.name, ": ", property, ": stated as ", stated, ", but ", what, "(", print_number(x),
                           ") = ", print_number(found)));
  }
  bool has_defaults() const {
    for (size_t i = 0; i < info_.constants.size(); ++i)
      if (f_.constants()[i] != info_.constants[i].value) return false;
    return true;
  }

  void zero_below_zero() {
    if (!info_.zero_below_zero) return;
    std::vector<double> points = {-1e4, -1e-12};
    for (const double x : grid_)
      if (x <= 0) points.push_back(x);
    const auto largest = [&](const auto& f) {
      return *std::max_element(points.begin(), points.end(),
                               [&](double a, double b) { return std::abs(f(a)) < std::abs(f(b)); });
    };
    const double x = largest([&](double point) { return value(point); }),
                 y = largest([&](double point) { return derivative(point); });
    if (value(x) != 0) return add_error("zero_below_zero", "F(x) = 0 for x <= 0", x, value(x));
    if (derivative(y) != 0) add_error("zero_below_zero", "F'(x) = 0 for x <= 0", y, derivative(y), "F'");
  }
  void homogeneous() {
    if (!f_.is_homogeneous()) return;
    for (const double x : grid_) {
      const double stated = 3 * value(x), found = value(3 * x);
      if (std::abs(stated - found) > 1e-13 * std::abs(found))
        return add_error("homogeneous", print_number(stated), 3 * x, found);
    }
  }
  void derivative_from_output() {
    if (!f_.has_derivative_from_output()) return;
    std::vector<double> points = grid_;
    points.insert(points.end(), info_.kinks.begin(), info_.kinks.end());
    for (const double x : points) {
      const double stated = f_.derivative_from_output(value(x)), found = derivative(x);
      if (std::abs(stated - found) <= 1e-13 * std::max(1.0, std::abs(found))) continue;
      return add_error("derivative_from_output", print_number(stated), x, found, "F'");
    }
  }
  void constants() {
    for (const nn::ActivationConstant& constant : info_.constants) {
      Spec spec{std::string(info_.name), {{std::string(constant.name), {print_number(constant.value), {}}}}};
      try {
        static_cast<void>(nn::Activation(spec));
      } catch (const Error& error) {
        errors_.push_back(text("constants: the default is out of range: ", error.what()));
      }
    }
  }
  void limits() {
    for (const double end : {-1e4, 1e4}) {
      const double limit = info_.limits[end > 0 ? 1 : 0], y = value(end);
      if (std::isfinite(limit) && !(std::abs(y - limit) < 1e-3)) add_error("limits", print_number(limit), end, y);
      if (std::isinf(limit) && !(std::abs(y) > 90 && std::signbit(y) == std::signbit(limit)))
        add_error("limits", limit > 0 ? "inf" : "-inf", end, y);
      if (!std::isnan(limit)) continue;
      bool moves = false;
      for (int i = 1; i <= 10; ++i) moves = moves || std::abs(value(end + i * 0.9) - y) > 1e-6;
      if (!moves) add_error("limits", "none", end, y);
    }
  }

  // Returns true if F', F'' or F''' jumps at x, from three derivatives on either side.
  bool has_jump(double x) const {
    constexpr double h = 1e-3, close = 1e-9;
    const auto side = [&](double sign) {
      return std::array{derivative(x + sign * close), derivative(x + sign * (close + h)),
                        derivative(x + sign * (close + 2 * h))};
    };
    const auto left = side(-1), right = side(1);
    const double scale = std::max({1.0, std::abs(left[0]), std::abs(right[0])});
    const auto second = [&](const auto& s, double sign) { return sign * (4 * s[1] - s[2] - 3 * s[0]) / (2 * h); };
    const auto third = [&](const auto& s) { return (s[0] - 2 * s[1] + s[2]) / (h * h); };
    return std::abs(left[0] - right[0]) > 1e-6 * scale ||
           std::abs(second(left, -1) - second(right, 1)) > 1e-3 * scale ||
           std::abs(third(left) - third(right)) > 0.1 * scale;
  }
  void stated_kinks() {
    for (const double kink : info_.kinks) {
      constexpr double h = 1e-6;
      const double left = (value(kink) - value(kink - h)) / h, right = (value(kink + h) - value(kink)) / h,
                   stated = derivative(kink);
      if (!(stated >= std::min(left, right) - 1e-5 && stated <= std::max(left, right) + 1e-5))
        errors_.push_back(text(info_.name, ": kinks: the derivative at ", print_number(kink), " is ",
                               print_number(stated), ", outside the one-sided derivatives ", print_number(left),
                               " and ", print_number(right)));
      else if (!has_jump(kink))
        errors_.push_back(text(info_.name, ": kinks: ", print_number(kink),
                               " is listed, but F', F'' and F''' have no jump there; leave it out, because finite "
                               "differences are not checked near a kink"));
    }
  }
  // Finds jumps of F' without a stated kink, by halving each interval toward its larger difference.
  void unstated_kinks() {
    for (size_t i = 0; i + 1 < grid_.size(); ++i) {
      double a = grid_[i], b = grid_[i + 1];
      for (int halvings = 0; halvings < 40; ++halvings) {
        const double middle = (a + b) / 2;
        (std::abs(derivative(middle) - derivative(a)) > std::abs(derivative(b) - derivative(middle)) ? b : a) = middle;
      }
      const double jump = std::abs(derivative(b) - derivative(a));
      const auto near = [&](double kink) { return std::abs(kink - a) < 1e-6; };
      if (jump > 1e-6 * std::max(1.0, std::abs(derivative(a))) &&
          std::none_of(info_.kinks.begin(), info_.kinks.end(), near))
        return errors_.push_back(text(info_.name, ": kinks: ", print_number(a), " is missing; F' jumps from ",
                                      print_number(derivative(a)), " to ", print_number(derivative(b)), " there"));
    }
  }

  const nn::Activation& f_;
  const nn::ActivationInfo& info_;
  std::vector<double> p_, grid_;
  std::vector<std::string> errors_;
};

}  // namespace

std::vector<std::string> property_errors(const nn::Activation& f) { return PropertyCheck(f).errors(); }

}  // namespace orrery::models
