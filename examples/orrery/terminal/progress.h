// Progress of long work: one redrawn line on a terminal, occasional lines in a pipe.
#pragma once

#include <chrono>
#include <iostream>
#include <string>

#include "models/training/trainer.h"

namespace orrery::program {

class Progress {
 public:
  explicit Progress(std::ostream& out = std::cout);  // standard output, or standard error if output is data
  ~Progress();  // keeps the last step's line
  Progress(const Progress&) = delete;

  void step(const models::StepReport& report);
  void share(const std::string& done, double share);  // ("read", 0.25): a quarter is read
  void say(const std::string& sentence);              // on its own line

 private:
  void draw(const std::string& line);
  using Clock = std::chrono::steady_clock;
  std::ostream& out_;
  bool terminal_;
  bool live_ = false;  // the cursor is on the live line
  std::string last_;   // newest step's line, until printed permanently
  Clock::time_point drawn_;
};

std::string step_line(const models::StepReport& report, bool narrow = false);  // narrow: at most about 80 columns
std::string time_text(double seconds);  // 1:05, 2:00:00; "long" from 30 years
// Returns the steps between two lines in a pipe: a round number that gives about 20 lines.
int64_t line_interval(int64_t steps);

}  // namespace orrery::program
