#include "examples/orrery/terminal/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "examples/orrery/terminal/table.h"

namespace orrery::program {
namespace {

constexpr std::chrono::milliseconds redraw_interval(100);
constexpr std::chrono::seconds longest_silence(10);

// A step may be faster than the clock's resolution; the rate is then infinite.
int64_t rounded(double x) { return std::llround(std::clamp(std::isnan(x) ? 0 : x, 0.0, 1e18)); }

}  // namespace

std::string time_text(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "long";  // 1e9 s: 30 years
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  const auto two = [](int64_t x) { return (x < 10 ? "0" : "") + std::to_string(x); };
  return hours > 0 ? std::to_string(hours) + ":" + two(minutes) + ":" + two(rest)
                   : std::to_string(minutes) + ":" + two(rest);
}

std::string step_line(const models::StepReport& r, bool narrow) {
  const auto wide = [&](const std::string& number, size_t width) {
    return narrow ? number : right_aligned(number, width);
  };
  const std::string steps = std::to_string(r.steps), gap = narrow ? " " : "  ";
  return (narrow ? "" : "step ") + right_aligned(std::to_string(r.step), steps.size()) + "/" + steps + gap + "loss " +
         (std::isnan(r.loss) ? "none" : fixed(r.loss, 4)) + gap + (narrow ? "|g| " : "gradient ") +
         wide(fixed(r.gradient_norm, 3), 6) + gap + "lr " + scientific(r.learning_rate) + gap +
         wide(fixed(r.milliseconds, 1), 6) + " ms" + gap + wide(grouped(rounded(r.units_per_second)), 7) + " " +
         (narrow && r.unit == "tokens" ? "tok" : r.unit) + "/s" + gap + "MFU " +
         (std::isnan(r.used) ? "n/a" : fixed(100 * r.used, 1) + " %") + gap +
         wide(fixed(static_cast<double>(r.memory) / 1e6, 0), 4) + " MB" + gap + time_text(r.seconds_left) +
         (narrow ? "" : " left");
}

int64_t line_interval(int64_t steps) {
  for (int64_t power = 1;; power *= 10)
    for (const int64_t digit : {1, 2, 5})
      if ((steps - 1) / 25 < digit * power) return digit * power;  // avoids overflow of 25 times the interval
}

Progress::Progress(std::ostream& out)
    : out_(out), terminal_(isatty(&out == &std::cerr ? STDERR_FILENO : STDOUT_FILENO) != 0), drawn_(Clock::now()) {}

Progress::~Progress() {
  try {
    if (live_) out_ << (last_.empty() ? "" : "\r\x1b[K" + last_) << std::endl;
  } catch (const std::exception&) {  // a destructor must not throw; the next print throws this error again
  }
}

void Progress::step(const models::StepReport& report) {
  const auto now = Clock::now();
  const bool ends = report.step == 1 || report.step == report.steps;
  if (terminal_) {
    const size_t columns = terminal_columns();
    last_ = step_line(report).size() < columns ? step_line(report) : step_line(report, true).substr(0, columns - 1);
    if (ends || now - drawn_ >= redraw_interval) draw(last_), drawn_ = now;
  } else if (ends || report.step % line_interval(report.steps) == 0 || now - drawn_ >= longest_silence) {
    out_ << step_line(report) << std::endl;
    drawn_ = now;
  }
}

void Progress::share(const std::string& done, double share) {
  const auto now = Clock::now();
  if (now - drawn_ < (terminal_ ? std::chrono::milliseconds(redraw_interval) : longest_silence)) return;
  drawn_ = now;
  const std::string line = text(done, " ", fixed(100 * share, 0), " %");
  if (terminal_)
    draw(last_ = line);
  else
    out_ << line << std::endl;
}

void Progress::say(const std::string& sentence) {
  out_ << (live_ ? "\r\x1b[K" : "") << for_terminal(sentence) << std::endl;
  live_ = false;
}

void Progress::draw(const std::string& line) {
  out_ << "\r\x1b[K" << line << std::flush;
  live_ = true;
}

}  // namespace orrery::program
