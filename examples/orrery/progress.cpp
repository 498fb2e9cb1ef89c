#include "examples/orrery/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <iostream>

#include "examples/orrery/table.h"

namespace orrery::program {
namespace {

constexpr std::chrono::milliseconds redraw_interval(100);
constexpr std::chrono::seconds longest_silence(10);

size_t terminal_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 100;
}

std::string padded(const std::string& number, size_t width) {
  return std::string(number.size() < width ? width - number.size() : 0, ' ') + number;
}

std::string time_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  const auto two = [](int64_t x) { return (x < 10 ? "0" : "") + std::to_string(x); };
  return hours > 0 ? std::to_string(hours) + ":" + two(minutes) + ":" + two(rest)
                   : std::to_string(minutes) + ":" + two(rest);
}

}  // namespace

std::string step_line(const models::StepReport& r) {
  const std::string steps = std::to_string(r.steps);
  return "step " + padded(std::to_string(r.step), steps.size()) + "/" + steps + "  loss " + fixed(r.loss, 4) +
         "  gradient " + padded(fixed(r.gradient_norm, 3), 6) + "  rate " + scientific(r.rate) + "  " +
         padded(fixed(r.milliseconds, 1), 6) + " ms  " + padded(grouped(std::llround(r.tokens_per_second)), 7) +
         " tokens/s  " + padded(fixed(static_cast<double>(r.memory) / 1e6, 0), 4) + " MB  " +
         time_text(r.seconds_left) + " left";
}

int64_t line_interval(int64_t steps) {
  for (int64_t power = 1;; power *= 10)
    for (const int64_t digit : {1, 2, 5})
      if (steps <= 25 * digit * power) return digit * power;
}

Progress::Progress() : terminal_(isatty(STDOUT_FILENO) != 0), drawn_(Clock::now()) {}

Progress::~Progress() {
  if (live_) std::cout << (last_.empty() ? "" : "\r\x1b[K" + last_) << std::endl;
}

void Progress::step(const models::StepReport& report) {
  const auto now = Clock::now();
  const bool ends = report.step == 1 || report.step == report.steps;
  const std::string line = step_line(report);
  if (terminal_) {
    last_ = line.substr(0, terminal_columns() - 1);
    if (ends || now - drawn_ >= redraw_interval) draw(last_), drawn_ = now;
  } else if (ends || report.step % line_interval(report.steps) == 0 || now - drawn_ >= longest_silence) {
    std::cout << line << std::endl;
    drawn_ = now;
  }
}

void Progress::say(const std::string& sentence) {
  std::cout << (live_ ? "\r\x1b[K" : "") << sentence << std::endl;
  live_ = false;
}

void Progress::draw(const std::string& line) {
  std::cout << "\r\x1b[K" << line << std::flush;
  live_ = true;
}

}  // namespace orrery::program
