#include "models/training/audience.h"

#include "engine/types/check.h"
#include "models/training/resume.h"

namespace orrery::models {

template <class Tell>
void Audience::attempt(const Tell& tell) {
  if (untold_) return;
  try {
    tell();
  } catch (...) {
    untold_ = std::current_exception();
  }
}

void Audience::step(const StepReport& report, const std::vector<std::pair<std::string, double>>& row) {
  attempt([&] {
    metrics_.write(report.step, row);
    if (events_.step) events_.step(report);
  });
}

void Audience::validation(int64_t step, const Validation& validation) {
  attempt([&] {
    std::vector<std::pair<std::string, double>> row = {{"validation_loss", validation.loss}};
    row.insert(row.end(), validation.figures.begin(), validation.figures.end());
    row.insert(row.end(), validation.details.begin(), validation.details.end());
    metrics_.write(step, row);
    if (events_.validation) events_.validation(step, validation);
  });
}

void Audience::probe(const Probe& probe) {
  attempt([&] {
    if (events_.probe) events_.probe(probe);
  });
}

void Audience::checkpoint(const std::string& path) {
  attempt([&] {
    if (events_.checkpoint) events_.checkpoint(path);
  });
}

void Audience::warnings(const std::vector<std::string>& sentences) {
  attempt([&] {
    for (const std::string& sentence : sentences)
      if (events_.warning) events_.warning(sentence);
  });
}

bool Audience::wants_end() { return ends_ = ends_ || untold_ || (events_.stop && events_.stop()); }

void Audience::finish(int64_t step, const std::string& checkpoint) const {
  if (!untold_) return;
  try {
    std::rethrow_exception(untold_);
  } catch (const Error& error) {
    fail(error.what(), "; the run ended after step ", step, " and is saved in ", checkpoint,
         "; resume it: ", command_to_resume(folder_));
  }
}

}  // namespace orrery::models
