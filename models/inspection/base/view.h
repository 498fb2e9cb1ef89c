// Results of an analysis as plain data: terminals print, reports draw and files store them.
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

// A matrix, or a grid of matrices with equal rows and columns, such as layers x heads.
struct MapView {
  std::string quantity;  // quantity of the values: "weight"
  std::vector<std::string> rows, columns;
  std::vector<std::string> names = {};             // per map: "blocks.0.attention head 2"; empty for one map
  std::pair<std::string, std::string> sides = {};  // of the grid: {"layer", "head"}; empty for one map
  std::pair<int64_t, int64_t> grid = {1, 1};
  Tensor values;                                  // (maps, rows, columns), floating, on the CPU; NaN: no value
  bool has_sign = false;                          // two colours, with 0 between them
  std::pair<std::string, std::string> axes = {};  // names of rows and columns, if their labels do not suffice
  double low = NAN, high = NAN;                   // ends of the scale; NaN: minimum and maximum of the values
  std::string none = "no value";                  // text where there is no value
  std::vector<size_t> marked = {};                // columns whose label is always shown
  int64_t slots = 0;                              // number of last columns that are persistent slots
  std::vector<double> reach = {};  // per map and row: columns before its own within the span; empty: no span
};

struct BarView {
  struct Bar {
    std::string name;
    double value, low = NAN, high = NAN;
    std::string note = "";
  };
  std::string quantity;
  std::vector<Bar> bars;
};

struct TableView {
  std::vector<std::string> columns;
  std::string alignment;  // l or r for each column
  std::vector<std::vector<std::string>> rows;
};

// Lines of y against x in one plot.
struct LineView {
  struct Line {
    std::string name;
    std::vector<double> x, y;
  };
  std::string x_label, y_label;
  std::vector<Line> lines;
  std::vector<std::string> x_labels = {};  // labels of x = 0, 1, ...; empty: x is a number
};

// The top prediction of each state (rows) at each position (columns).
struct LensView {
  std::vector<std::string> rows, columns;
  std::vector<std::string> words;    // top predictions, row by row
  std::vector<std::string> targets;  // per column; empty: no target
  std::string target;                // what a target is: "the target"
  // (1, rows, columns), f64: p of the top prediction; ln p and rank of the target, NaN: no target.
  Tensor probability, log_probability, rank;
};

// The tokens of an input in order, with a value of each.
struct TokensView {
  std::string quantity;  // quantity of the values: "-ln p"
  std::vector<std::string> tokens;
  std::vector<double> values;  // NaN: no value; empty: none has one
};

// The most likely tokens or classes at each position.
struct ChoicesView {
  struct Choice {
    std::string name;
    double probability;
  };
  std::vector<std::string> positions;
  std::vector<std::vector<Choice>> choices;  // per position, the most likely first, equally many
  std::vector<Choice> targets;               // per position; an empty name: unknown
  size_t shown = 0;                          // position that is shown first
};

// An image; positions named "ROW,COLUMN" are its patches.
struct ImageView {
  Tensor pixels;  // (H, W, C), as the model receives them, on the CPU
  std::vector<std::string> positions;
};

// The tree of a model's modules. A module comes before those in it, whose paths begin with its own.
struct ComponentsView {
  struct Formula {
    std::string family, name;  // family: "attention", "layer"; empty: a class without a formula
    std::string formula;
    std::string file = {}, link = {};  // its source file, and a page's link to it; empty: unknown
  };
  struct Component {
    std::string path;                        // "blocks.0.attention"; empty: the model
    std::string kind;                        // family of its spec, "attention", else its class, "block"
    std::string spec = {};                   // "softmax(qk_norm=rms)"; empty: made without one
    std::vector<std::string> tensors = {};   // its own parameters: "weight (384, 128)"
    int64_t parameters = 0;                  // number of elements, with those of the modules in it
    int64_t heads = 0, units = 0, slots = 0;  // 0: none
    std::vector<double> span = {};           // tokens that each head, or every one, attends to; empty: no span
    std::vector<size_t> formulas = {};       // numbers of the module's formula and of those that its spec names
  };
  std::vector<Component> components;
  std::vector<Formula> formulas;  // filled by add_formulas (models/reports/report_components.h)
};

struct View {
  std::string group;  // heading of the analysis
  std::string name;   // file name of its numbers: letters, digits, _ . and /
  std::string title, caption;
  std::variant<MapView, BarView, TableView, LineView, LensView, TokensView, ChoicesView, ImageView,
               ComponentsView>
      data;
  bool plot_only = false;                                    // a terminal prints a table with the same data instead
  std::vector<std::pair<std::string, double>> metrics = {};  // "heads/induction/blocks.0.attention.3", see metrics_of
  std::vector<std::pair<std::string, double>> chance = {};   // level of chance of those metrics for which it is known
};

// Returns the metrics of analyses by name, analysis/metric/path, to compare models.
std::map<std::string, double> metrics_of(std::span<const View> views);

}  // namespace orrery::models
