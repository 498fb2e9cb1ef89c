#include "models/study/claim_plot.h"

#include <algorithm>
#include <cmath>

#include "engine/settings/spec.h"
#include "engine/types/format.h"
#include "models/formats/shown_text.h"
#include "models/study/statistics.h"

namespace orrery::models {
namespace {

constexpr double width = 640, left = 64, right = 20, line = 18;
// Okabe and Ito's colours, which colour-blind people can distinguish.
constexpr const char* colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};

struct Mark {
  double x = 0;
  Interval y;
};
struct Line {
  std::string name;
  std::vector<Mark> marks;
};

std::vector<Line> lines_of(const Claim& claim, const Measurements& measured) {
  std::vector<Line> lines;
  for (size_t v = 0; v < claim.variants.size(); ++v) {
    Line line{claim.variants[v].name, {}};
    for (size_t s = 0; s < claim.swept_values(); ++s) {
      std::vector<double> known;
      for (const auto& each : measured.values[0][v][s])
        if (each) known.push_back(*each);
      if (known.empty()) continue;
      const double mean = spread_of(known).mean;
      line.marks.push_back({claim.swept_number(s), confidence_interval(known).value_or(Interval{mean, mean, mean})});
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string escaped(const std::string& text) { return for_html(for_terminal(text)); }
std::string coordinate(double x) { return fixed(x, 1); }

std::string svg_text(double x, double y, const std::string& text, const std::string& more = "") {
  return orrery::text("<text x=\"", coordinate(x), "\" y=\"", coordinate(y), "\"", more, ">", escaped(text),
                      "</text>\n");
}
std::string svg_line(double x1, double y1, double x2, double y2, const std::string& more) {
  return text("<line x1=\"", coordinate(x1), "\" y1=\"", coordinate(y1), "\" x2=\"", coordinate(x2), "\" y2=\"",
              coordinate(y2), "\" ", more, "/>\n");
}

// Breaks a sentence into lines of at most `max_bytes` bytes.
std::vector<std::string> wrapped(const std::string& sentence, size_t max_bytes) {
  std::vector<std::string> lines = {""};
  for (size_t begin = 0; begin < sentence.size();) {
    const size_t end = std::min(sentence.find(' ', begin), sentence.size());
    const std::string word = sentence.substr(begin, end - begin);
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > max_bytes) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
    begin = end + 1;
  }
  return lines;
}

// Returns about five round numbers from low to high.
std::vector<double> ticks_of(double low, double high) {
  const double raw = (high - low) / 5, power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = power;
  for (const double factor : {2.0, 5.0, 10.0})
    if (step < raw) step = factor * power;
  std::vector<double> ticks;
  for (double k = std::ceil(low / step); k * step <= high; ++k) ticks.push_back(k * step + 0.0);  // + 0.0: no -0
  return ticks;
}

struct Scale {
  double low, high, from, to;
  bool logarithmic = false;
  double operator()(double x) const {
    const auto of = [&](double value) { return logarithmic ? std::log(value) : value; };
    return from + (of(x) - of(low)) / (of(high) - of(low)) * (to - from);
  }
};

Scale scale_of(std::vector<double> ends, double from, double to, double margin) {
  const auto [lowest, highest] = std::minmax_element(ends.begin(), ends.end());
  const double span = *highest > *lowest ? *highest - *lowest : std::max(std::abs(*highest), 1.0);
  return {*lowest - margin * span, *highest + margin * span, from, to};
}

std::string over_sweep(const Claim& claim, const std::vector<Line>& lines, double top, double bottom) {
  std::vector<double> x, y;
  for (const Line& each : lines)
    for (const Mark& mark : each.marks) x.push_back(mark.x), y.push_back(mark.y.low), y.push_back(mark.y.high);
  const auto [lowest, highest] = std::minmax_element(x.begin(), x.end());
  Scale x_scale{*lowest, *highest, left + 24, width - right - 24, *lowest > 0 && *highest / *lowest >= 8};
  if (*lowest == *highest) x_scale.low -= 1, x_scale.high += 1, x_scale.logarithmic = false;
  const Scale y_scale = scale_of(y, bottom, top, 0.05);
  std::string svg;
  for (const double tick : ticks_of(y_scale.low, y_scale.high))
    svg += svg_line(left, y_scale(tick), width - right, y_scale(tick), "class=\"grid\"") +
           svg_text(left - 8, y_scale(tick) + 4, significant(tick, 3), " class=\"quiet\" text-anchor=\"end\"");
  for (size_t s = 0; s < claim.swept_values(); ++s)
    svg += svg_text(x_scale(claim.swept_number(s)), bottom + line, claim.swept_text(s),
                    " class=\"quiet\" text-anchor=\"middle\"");
  svg += svg_text((left + width) / 2, bottom + 2 * line, claim.sweep[0].key, " class=\"quiet\" text-anchor=\"middle\"");
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string colour = colours[i % std::size(colours)];
    // Offset, so that overlapping marks do not hide each other.
    const double offset = 4 * (static_cast<double>(i) - static_cast<double>(lines.size() - 1) / 2);
    std::string path;
    for (const Mark& mark : lines[i].marks) {
      const double at = x_scale(mark.x) + offset;
      path += (path.empty() ? "M" : "L") + coordinate(at) + " " + coordinate(y_scale(mark.y.mean));
      svg +=
          svg_line(at, y_scale(mark.y.low), at, y_scale(mark.y.high), "stroke-width=\"2\" stroke=\"" + colour + "\"");
      svg += text("<circle cx=\"", coordinate(at), "\" cy=\"", coordinate(y_scale(mark.y.mean)), "\" r=\"3.5\" fill=\"",
                  colour, "\"/>\n");
    }
    svg += text("<path d=\"", path, "\" fill=\"none\" stroke-width=\"1.5\" stroke=\"", colour, "\"/>\n");
  }
  return svg;
}

std::string side_by_side(const std::vector<Line>& lines, double top, double bottom) {
  std::vector<double> ends;
  for (const Line& each : lines)
    for (const Mark& mark : each.marks) ends.push_back(mark.y.low), ends.push_back(mark.y.high);
  const double names = 150;
  const Scale x_scale = scale_of(ends, names, width - right - 70, 0.05);
  std::string svg;
  for (const double tick : ticks_of(x_scale.low, x_scale.high))
    svg += svg_line(x_scale(tick), top, x_scale(tick), bottom, "class=\"grid\"") +
           svg_text(x_scale(tick), bottom + line, significant(tick, 3), " class=\"quiet\" text-anchor=\"middle\"");
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].marks.empty()) continue;
    const std::string colour = colours[i % std::size(colours)];
    const Interval& y = lines[i].marks[0].y;
    const double at = top + (static_cast<double>(i) + 0.5) * (bottom - top) / static_cast<double>(lines.size());
    svg += svg_text(names - 12, at + 4, lines[i].name, " text-anchor=\"end\"") +
           svg_line(x_scale(y.low), at, x_scale(y.high), at, "stroke-width=\"2\" stroke=\"" + colour + "\"") +
           text("<circle cx=\"", coordinate(x_scale(y.mean)), "\" cy=\"", coordinate(at), "\" r=\"4.5\" fill=\"",
                colour, "\"/>\n") +
           svg_text(width - right, at + 4, significant(y.mean, 4), " text-anchor=\"end\"");
  }
  return svg;
}

constexpr const char *begin = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"",
                     *attributes = "\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"13\">";

}  // namespace

OutputKind plot_kind() { return marked_kind("a plot of a study", begin, attributes); }

std::string claim_plot(const Claim& claim, const Measurements& measured, const std::string& verdict) {
  const std::vector<Line> lines = lines_of(claim, measured);
  const bool has_marks = std::any_of(lines.begin(), lines.end(), [](const Line& each) { return !each.marks.empty(); });
  const bool swept = !claim.sweep.empty();
  std::string body;
  double y = 24;
  for (const std::string& text_line : wrapped(claim.sentence, 74))
    body += svg_text(16, y, text_line, " font-weight=\"600\" font-size=\"15\""), y += line + 2;
  const MetricExpression& metric = claim.metrics[0];
  const std::string metric_text = print(metric.is_of_sweep() ? metric.arguments[0] : metric);
  const std::string measured_as = text(verdict, ": ", humanize(metric_text), ", mean and 95 % interval");
  for (const std::string& text_line : wrapped(measured_as, 88))
    body += svg_text(16, y, text_line, " class=\"quiet\""), y += line;
  if (swept) {
    double x = left;
    for (size_t i = 0; i < lines.size(); ++i) {
      body += text("<circle cx=\"", coordinate(x), "\" cy=\"", coordinate(y - 4), "\" r=\"4\" fill=\"",
                   colours[i % std::size(colours)], "\"/>\n") +
              svg_text(x + 9, y, lines[i].name);
      x += 30 + 8 * static_cast<double>(lines[i].name.size());
    }
    y += line / 2;
  }
  const double bottom = y + (swept ? 190 : 34 * static_cast<double>(lines.size()));
  if (has_marks) body += swept ? over_sweep(claim, lines, y, bottom) : side_by_side(lines, y, bottom);
  const double height = bottom + (swept ? 2.7 : 1.7) * line;
  return text(begin, width, "\" height=\"", coordinate(height), "\" viewBox=\"0 0 ", width, " ", coordinate(height),
              attributes, "\n<title>", escaped(claim.sentence), "</title>\n<style>",
              "svg { background: #fff } text { fill: #1b1f24 } .quiet { fill: #57606a } .grid { stroke: #d8dee4 } ",
              "@media (prefers-color-scheme: dark) { svg { background: #0d1117 } text { fill: #e6edf3 } ",
              ".quiet { fill: #9198a1 } .grid { stroke: #30363d } }</style>\n", body, "</svg>\n");
}

}  // namespace orrery::models
