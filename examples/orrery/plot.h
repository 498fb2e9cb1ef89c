// Curves in a terminal.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace orrery::program {

struct Curve {
  std::string name;
  std::function<double(double)> value;
};

// Each curve in a panel of its own, side by side, over [low, high], in dots of two by four to a character, with the
// axes' ends written at them.  Values that are not finite leave gaps.
std::string plot(const std::vector<Curve>& curves, double low, double high, int columns = 40, int lines = 12);

}  // namespace orrery::program
