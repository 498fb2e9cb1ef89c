// Curves in a terminal.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::program {

struct Curve {
  std::string name;
  std::function<double(double)> value;
};

// Each curve in a panel of its own, side by side, over [low, high], in dots of two by four to a character, with the
// axes' ends written at them.  Values that are not finite leave gaps.
std::string plot(const std::vector<Curve>& curves, double low, double high, int columns = 40, int lines = 12);

// A curve of points over [low, high]: a column shows the mean of the points that fall into it, or what lies between its
// neighbours on a straight line; values that are not finite are left out.
class Series {
 public:
  Series(double low, double high, size_t columns = 72)
      : low_(low), high_(high), sums_(columns), counts_(columns) {}
  void add(double x, double y);
  std::vector<double> shown() const;  // of each column; NaN: nothing
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  double low_, high_;
  std::vector<double> sums_, counts_;
};
// All in one panel over the same [low, high], on top of each other, each in the character of its number from 1 (then a
// to z); * where several are.  The vertical axis is as long as what is shown.
std::string plot_together(const std::string& title, const std::vector<Series>& series, int lines = 14);

}  // namespace orrery::program
