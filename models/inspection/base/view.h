// What a look has seen, as plain data: the terminal prints it, a report draws it, its numbers can be written to files.
#pragma once

#include <cmath>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/tensor/tensor.h"

namespace orrery::models {

// One matrix, or several of the same rows and columns that stand in a grid, such as layers x heads.
struct MapView {
  std::string figure;  // what a number is: "weight"
  std::vector<std::string> rows, columns;
  std::vector<std::string> names = {};             // of each map: "blocks.0.attention head 2"; of one map: empty
  std::pair<std::string, std::string> sides = {};  // of the grid: {"layer", "head"}; of one map: empty
  std::pair<int64_t, int64_t> grid = {1, 1};
  Tensor values;                                  // (maps, rows, columns), floating, on the CPU; NaN: there is none
  bool has_sign = false;                          // two colours, and 0 between them
  std::pair<std::string, std::string> axes = {};  // what rows and columns are, where their words do not say it
  double low = NAN, high = NAN;                   // ends of the scale; NaN: the least and the largest of the values
  std::string none = "no value";                  // what is said where there is none
  std::vector<size_t> marked = {};                // columns whose label is shown whatever room there is
  int64_t slots = 0;                              // so many of the last columns are persistent slots
  std::vector<double> reach = {};  // of each map and row: so many columns before its own a span holds; empty: no span
};

struct BarView {
  struct Bar {
    std::string name;
    double value, low = NAN, high = NAN;
    std::string note = "";
  };
  std::string figure;
  std::vector<Bar> bars;
};

struct TableView {
  std::vector<std::string> columns;
  std::string alignment;  // a letter a column, l or r
  std::vector<std::vector<std::string>> rows;
};

// Lines of x against y, all in one picture.
struct LineView {
  struct Line {
    std::string name;
    std::vector<double> x, y;
  };
  std::string x_figure, y_figure;
  std::vector<Line> lines;
  std::vector<std::string> places = {};  // of x = 0, 1, ...; empty: x is a number
};

struct View {
  std::string group;  // the look's heading
  std::string name;   // of its numbers in a file: letters, digits, _ . and /
  std::string title, said;
  std::variant<MapView, BarView, TableView, LineView> shown;
  bool only_drawn = false;                                   // a table beside it says the same on a terminal
  std::vector<std::pair<std::string, double>> figures = {};  // "heads/induction/blocks.0.attention.3", see figures_of
};

// What looks tell as numbers that can be compared between models, look/figure/place, by name.
std::map<std::string, double> figures_of(std::span<const View> views);

}  // namespace orrery::models
