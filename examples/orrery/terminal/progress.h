// Progress of long work on standard error: one redrawn line on a terminal, else occasional lines.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "models/training/trainer.h"

namespace orrery::program {

// A thread shows `work`, or the newest fraction, with the time so far: after two seconds on a
// terminal, every ten seconds in a file or pipe. Shorter work shows nothing.
class Progress {
 public:
  enum class Results {
    at_the_end,
    shown_at_once  // on a terminal, they are the progress, and nothing else is shown
  };

  Progress() = default;  // of training: only steps are shown
  explicit Progress(const std::string& work, Results results = Results::at_the_end);
  ~Progress();  // keeps the last step's line and erases any other
  Progress(const Progress&) = delete;

  void step(const models::StepReport& report);              // a step of training
  void fraction(const std::string& done, double fraction);  // ("read", 0.25): a quarter is read

 private:
  using Clock = std::chrono::steady_clock;
  void show_regularly();
  void show();  // lock_ is held
  std::string line_, last_step_;
  Clock::time_point began_ = Clock::now(), shown_ = began_;
  bool silent_ = false, ended_ = false;
  std::mutex lock_;
  std::condition_variable end_;
  std::thread thread_;
};

std::string step_line(const models::StepReport& report, bool narrow = false);  // narrow: at most about 80 columns
std::string time_text(double seconds);                                         // 1:05, 2:00:00; "long" from 30 years
// Returns the steps between two lines in a pipe: a round number that gives about 20 lines.
int64_t line_interval(int64_t steps);

}  // namespace orrery::program
