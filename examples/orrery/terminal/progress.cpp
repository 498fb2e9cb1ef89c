#include "examples/orrery/terminal/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <system_error>

#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/style.h"
#include "examples/orrery/terminal/table.h"

namespace orrery::program {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds redraw_interval(100), shortest_work(2'000), max_silence(10'000);

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
         wide(fixed(r.milliseconds, 1), 6) + " ms" + gap + wide(with_commas(rounded(r.units_per_second)), 7) + " " +
         (narrow && r.unit == "tokens" ? "tok" : r.unit) + "/s" + gap + "MFU " +
         (std::isnan(r.mfu) ? "n/a" : fixed(100 * r.mfu, 1) + " %") + gap +
         wide(fixed(static_cast<double>(r.memory) / 1e6, 0), 4) + " MB" + gap + time_text(r.seconds_left) +
         (narrow ? "" : " left");
}

int64_t line_interval(int64_t steps) {
  for (int64_t power = 1;; power *= 10)
    for (const int64_t digit : {1, 2, 5})
      if ((steps - 1) / 25 < digit * power) return digit * power;  // avoids overflow of 25 times the interval
}

Progress::Progress(const std::string& work, Results results)
    : line_(for_terminal(work)), silent_(results == Results::shown_at_once && is_live_terminal(STDOUT_FILENO)) {
  if (silent_) return;
  try {
    thread_ = std::thread([this] { show_regularly(); });
  } catch (const std::system_error&) {  // without another thread, only fractions are shown
  }
}

Progress::~Progress() {
  {
    const std::lock_guard guard(lock_);
    ended_ = true;
  }
  end_.notify_all();
  if (thread_.joinable()) thread_.join();
  try {
    if (erase_live_line()) print_message(last_step_);
  } catch (const std::exception&) {  // a destructor must not throw; the next print throws this error again
  }
}

void Progress::show_regularly() {
  try {
    std::unique_lock guard(lock_);
    while (!end_.wait_for(guard, redraw_interval, [this] { return ended_; })) show();
  } catch (const std::exception&) {  // out of memory: the work itself reports it
  }
}

void Progress::show() {
  const auto now = Clock::now();
  const bool live = is_live_terminal(STDERR_FILENO);
  if (now - began_ < shortest_work || now - shown_ < (live ? redraw_interval : max_silence)) return;
  shown_ = now;
  const std::string line = line_ + ", " + time_text(std::chrono::duration<double>(now - began_).count());
  show_live_line(live ? cut_lines(line, terminal_columns(STDERR_FILENO) - 1) : line);
}

void Progress::step(const models::StepReport& report) {
  const auto now = Clock::now();
  const bool ends = report.step == 1 || report.step == report.steps;
  if (is_live_terminal(STDERR_FILENO)) {
    const size_t columns = terminal_columns(STDERR_FILENO);
    last_step_ =
        step_line(report).size() < columns ? step_line(report) : step_line(report, true).substr(0, columns - 1);
    if (ends || now - shown_ >= redraw_interval) show_live_line(last_step_), shown_ = now;
  } else if (ends || report.step % line_interval(report.steps) == 0 || now - shown_ >= max_silence) {
    print_message(step_line(report));
    shown_ = now;
  }
}

void Progress::fraction(const std::string& done, double fraction) {
  const std::lock_guard guard(lock_);
  if (silent_) return;
  line_ = text(for_terminal(done), " ", fixed(100 * fraction, 0), " %");
  show();
}

}  // namespace orrery::program
