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

// Plots each curve over [low, high] in its own panel of `columns` x `lines` characters, with 2 x 4
// dots each and labels at the ends of axes. Panels are side by side. Non-finite values leave gaps.
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
// Plots all series, at least one, in a panel of their columns x `lines` characters over the same
// [low, high]. Marks are 1 to 9, then a to z and again from a by index, and '*' where several meet.
// The vertical axis spans the values.
std::string plot_together(const std::string& title, const std::vector<Series>& series, int lines = 14);

}  // namespace orrery::program
