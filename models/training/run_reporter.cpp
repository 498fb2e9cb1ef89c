#include "models/training/run_reporter.h"

#include "engine/types/check.h"
#include "models/training/resume.h"

namespace orrery::models {

template <class Report>
void RunReporter::attempt(const Report& report) {
  if (pending_exception_) return;
  try {
    report();
  } catch (...) {
    pending_exception_ = std::current_exception();
  }
}

void RunReporter::step(const StepReport& report, const std::vector<std::pair<std::string, double>>& row) {
  attempt([&] {
    if (metrics_) metrics_->write(report.step, row);
    if (events_.step) events_.step(report);
  });
}

std::vector<std::pair<std::string, double>> log_row(const Validation& validation) {
  std::vector<std::pair<std::string, double>> row = {{"validation_loss", validation.loss}};
  row.insert(row.end(), validation.metrics.begin(), validation.metrics.end());
  row.insert(row.end(), validation.details.begin(), validation.details.end());
  return row;
}

void RunReporter::validation(int64_t step, const Validation& validation) {
  attempt([&] {
    if (metrics_) metrics_->write(step, log_row(validation));
    if (events_.validation) events_.validation(step, validation);
  });
}

void RunReporter::propagation(const SignalPropagation& propagation) {
  attempt([&] {
    if (events_.propagation) events_.propagation(propagation);
  });
}

void RunReporter::checkpoint(const std::string& path) {
  attempt([&] {
    if (events_.checkpoint) events_.checkpoint(path);
  });
}

void RunReporter::warnings(const std::vector<std::string>& messages) {
  attempt([&] {
    for (const std::string& message : messages)
      if (events_.warning) events_.warning(message);
  });
}

bool RunReporter::should_stop() {
  return stopping_ = stopping_ || pending_exception_ || (events_.stop && events_.stop());
}

void RunReporter::finish(int64_t step, const std::string& checkpoint) const {
  if (!pending_exception_) return;
  try {
    std::rethrow_exception(pending_exception_);
  } catch (const Error& error) {
    fail(error.what(), "; the run ended after step ", step, " and is saved in ", checkpoint,
         "; resume it: ", resume_command(folder_));
  }
}

}  // namespace orrery::models
