// What the user sees of long work: one line that is redrawn on a terminal, plain lines now and then in a pipe.
#pragma once

#include <chrono>
#include <iostream>
#include <string>

#include "models/training/trainer.h"

namespace orrery::program {

class Progress {
 public:
  explicit Progress(std::ostream& out = std::cout);  // standard output or, beside results, standard error
  ~Progress();  // leaves the last step's line standing
  Progress(const Progress&) = delete;

  void step(const models::StepReport& report);
  void share(const std::string& done, double share);  // "read", 0.25: of something long, a quarter is read
  void say(const std::string& sentence);              // a line of its own

 private:
  void draw(const std::string& line);
  using Clock = std::chrono::steady_clock;
  std::ostream& out_;
  bool terminal_;
  bool live_ = false;  // the cursor stands on the live line
  std::string last_;   // the newest step's line, if it has not been printed for good
  Clock::time_point drawn_;
};

std::string step_line(const models::StepReport& report, bool narrow = false);  // narrow: at most about 80 columns
std::string time_text(double seconds);  // 1:05, 2:00:00; "long" from 30 years on
// Steps between two lines in a pipe: a round number that gives about twenty lines.
int64_t line_interval(int64_t steps);

}  // namespace orrery::program
