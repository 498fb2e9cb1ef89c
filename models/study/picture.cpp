#include "models/study/picture.h"

#include <algorithm>
#include <cmath>

#include "engine/settings/spec.h"
#include "engine/types/wording.h"
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
std::string place(double x) { return fixed(x, 1); }

std::string words(double x, double y, const std::string& text, const std::string& more = "") {
  return orrery::text("<text x=\"", place(x), "\" y=\"", place(y), "\"", more, ">", escaped(text), "</text>\n");
}
std::string stroke(double x1, double y1, double x2, double y2, const std::string& more) {
  return text("<line x1=\"", place(x1), "\" y1=\"", place(y1), "\" x2=\"", place(x2), "\" y2=\"", place(y2), "\" ",
              more, "/>\n");
}

// Breaks a sentence into lines of at most `most` bytes.
std::vector<std::string> wrapped(const std::string& sentence, size_t most) {
  std::vector<std::string> lines = {""};
  for (size_t begin = 0; begin < sentence.size();) {
    const size_t end = std::min(sentence.find(' ', begin), sentence.size());
    const std::string word = sentence.substr(begin, end - begin);
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > most) lines.emplace_back();
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
  for (double k = std::ceil(low / step); k * step <= high; ++k) ticks.push_back(k * step);
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

Scale scale_of(std::vector<double> ends, double from, double to, double room) {
  const auto [least, most] = std::minmax_element(ends.begin(), ends.end());
  const double span = *most > *least ? *most - *least : std::max(std::abs(*most), 1.0);
  return {*least - room * span, *most + room * span, from, to};
}

std::string over_sweep(const Claim& claim, const std::vector<Line>& lines, double top, double bottom) {
  std::vector<double> x, y;
  for (const Line& each : lines)
    for (const Mark& mark : each.marks) x.push_back(mark.x), y.push_back(mark.y.low), y.push_back(mark.y.high);
  const auto [least, most] = std::minmax_element(x.begin(), x.end());
  Scale across{*least, *most, left + 24, width - right - 24, *least > 0 && *most / *least >= 8};
  if (*least == *most) across.low -= 1, across.high += 1, across.logarithmic = false;
  const Scale down = scale_of(y, bottom, top, 0.05);
  std::string svg;
  for (const double tick : ticks_of(down.low, down.high))
    svg += stroke(left, down(tick), width - right, down(tick), "class=\"grid\"") +
           words(left - 8, down(tick) + 4, significant(tick, 3), " class=\"quiet\" text-anchor=\"end\"");
  for (size_t s = 0; s < claim.swept_values(); ++s)
    svg += words(across(claim.swept_number(s)), bottom + line, claim.swept_text(s),
                 " class=\"quiet\" text-anchor=\"middle\"");
  svg += words((left + width) / 2, bottom + 2 * line, claim.sweep[0].key, " class=\"quiet\" text-anchor=\"middle\"");
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string colour = colours[i % std::size(colours)];
    // Offset, so that overlapping marks do not hide each other.
    const double aside = 4 * (static_cast<double>(i) - static_cast<double>(lines.size() - 1) / 2);
    std::string path;
    for (const Mark& mark : lines[i].marks) {
      const double at = across(mark.x) + aside;
      path += (path.empty() ? "M" : "L") + place(at) + " " + place(down(mark.y.mean));
      svg += stroke(at, down(mark.y.low), at, down(mark.y.high), "stroke-width=\"2\" stroke=\"" + colour + "\"");
      svg += text("<circle cx=\"", place(at), "\" cy=\"", place(down(mark.y.mean)), "\" r=\"3.5\" fill=\"", colour,
                  "\"/>\n");
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
  const Scale across = scale_of(ends, names, width - right - 70, 0.05);
  std::string svg;
  for (const double tick : ticks_of(across.low, across.high))
    svg += stroke(across(tick), top, across(tick), bottom, "class=\"grid\"") +
           words(across(tick), bottom + line, significant(tick, 3), " class=\"quiet\" text-anchor=\"middle\"");
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].marks.empty()) continue;
    const std::string colour = colours[i % std::size(colours)];
    const Interval& y = lines[i].marks[0].y;
    const double at = top + (static_cast<double>(i) + 0.5) * (bottom - top) / static_cast<double>(lines.size());
    svg +=
        words(names - 12, at + 4, lines[i].name, " text-anchor=\"end\"") +
        stroke(across(y.low), at, across(y.high), at, "stroke-width=\"2\" stroke=\"" + colour + "\"") +
        text("<circle cx=\"", place(across(y.mean)), "\" cy=\"", place(at), "\" r=\"4.5\" fill=\"", colour, "\"/>\n") +
        words(width - right, at + 4, significant(y.mean, 4), " text-anchor=\"end\"");
  }
  return svg;
}

constexpr const char *begin = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"",
                     *attributes = "\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"13\">";

}  // namespace

OutputKind picture_kind() { return marked_kind("a plot of a study", begin, attributes); }

std::string picture_of(const Claim& claim, const Measurements& measured, const std::string& verdict) {
  const std::vector<Line> lines = lines_of(claim, measured);
  const bool any = std::any_of(lines.begin(), lines.end(), [](const Line& each) { return !each.marks.empty(); });
  const bool swept = !claim.sweep.empty();
  std::string body;
  double y = 24;
  for (const std::string& part : wrapped(claim.sentence, 74))
    body += words(16, y, part, " font-weight=\"600\" font-size=\"15\""), y += line + 2;
  const Metric& metric = claim.metrics[0];
  const std::string figure = print(metric.is_of_sweep() ? metric.parts[0] : metric);
  body += words(16, y, text(verdict, ": ", in_words(figure), ", mean and 95 % interval"), " class=\"quiet\"");
  y += line;
  if (swept) {
    double x = left;
    for (size_t i = 0; i < lines.size(); ++i) {
      body += text("<circle cx=\"", place(x), "\" cy=\"", place(y - 4), "\" r=\"4\" fill=\"",
                   colours[i % std::size(colours)], "\"/>\n") +
              words(x + 9, y, lines[i].name);
      x += 30 + 8 * static_cast<double>(lines[i].name.size());
    }
    y += line / 2;
  }
  const double bottom = y + (swept ? 190 : 34 * static_cast<double>(lines.size()));
  if (any) body += swept ? over_sweep(claim, lines, y, bottom) : side_by_side(lines, y, bottom);
  const double height = bottom + (swept ? 2.7 : 1.7) * line;
  return text(begin, width, "\" height=\"", place(height), "\" viewBox=\"0 0 ", width, " ", place(height), attributes,
              "\n<title>", escaped(claim.sentence), "</title>\n<style>",
              "svg { background: #fff } text { fill: #1b1f24 } .quiet { fill: #57606a } .grid { stroke: #d8dee4 } ",
              "@media (prefers-color-scheme: dark) { svg { background: #0d1117 } text { fill: #e6edf3 } ",
              ".quiet { fill: #9198a1 } .grid { stroke: #30363d } }</style>\n", body, "</svg>\n");
}

}  // namespace orrery::models
