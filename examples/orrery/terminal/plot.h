// Plots in a terminal.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace orrery::program {

struct Curve {
  std::string name;
  std::function<double(double)> value;
};

// Plots each curve over [low, high] in its own panel, side by side, with 2 x 4 dots per character
// and labels at the ends of axes. Non-finite values leave gaps.
std::string plot(const std::vector<Curve>& curves, double low, double high, int columns = 40, int lines = 12);

// Curve of points over [low, high]. A column shows the mean of its points, else a linear
// interpolation of adjacent columns; non-finite values are skipped.
class Series {
 public:
  Series(double low, double high, size_t columns = 72)
      : low_(low), high_(high), sums_(columns), counts_(columns) {}
  void add(double x, double y);  // x within [low, high]
  std::vector<double> shown() const;  // per column; NaN: no value
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  double low_, high_;
  std::vector<double> sums_, counts_;
};
// Plots all series in one panel over the same [low, high], marked 1 to 9, then a to z by index, and
// '*' where several meet. The vertical axis spans the values.
std::string plot_together(const std::string& title, const std::vector<Series>& series, int lines = 14);

}  // namespace orrery::program
