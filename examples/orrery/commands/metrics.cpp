// orrery metrics: writes a run's log in other programs' formats.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <set>

#include "engine/system/files.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/table.h"
#include "models/formats/csv.h"
#include "models/formats/output_file.h"
#include "models/former_names.h"
#include "models/interop/tensorboard.h"
#include "models/study/metric_names.h"
#include "models/study/run_contents.h"

namespace orrery::program {
namespace {

using models::LogRow;

// TensorBoard reads files with "tfevents" in the name.
constexpr const char* event_file = "events.out.tfevents.0.orrery";

struct MetricsSettings {
  std::string format = "csv", out, metrics;

  template <class V>
  void visit(V& v) {
    v("format", format, "csv or tensorboard", one_of({"csv", "tensorboard"}));
    v("out", out,
      text("csv: file, if not given standard output; tensorboard: folder for ", event_file, ", if not given RUN"));
    v("metrics|figures", metrics,
      "metrics to write: PATTERN, ..., * matches any text, as in 'loss,gradient_norm*'; if not given, all");
  }
};

using Write = std::function<void(std::string_view)>;

std::string csv_header(const std::vector<std::string>& metrics) {
  std::vector<std::string> names = {"step"};
  names.insert(names.end(), metrics.begin(), metrics.end());
  return models::csv_line(names);
}

// Returns the number of rows.
int64_t write_csv(const models::RunLog& log, const std::vector<std::string>& metrics, const Write& write) {
  int64_t rows = 0;
  write(csv_header(metrics));
  log.each([&](const LogRow& row) {
    ++rows;
    std::vector<std::string> fields = {std::to_string(row.step)};
    for (const std::string& name : metrics) {
      const auto found = row.metrics.find(name);
      fields.push_back(found == row.metrics.end()  ? ""
                       : std::isnan(found->second) ? "nan"
                                                   : print_number(found->second));
    }
    write(models::csv_line(fields));
  });
  return rows;
}

// Returns the current names of a file's metric columns; none if this command wrote no header there.
std::vector<std::string> columns_of(const std::string& path) {
  constexpr size_t max_bytes = size_t{1} << 20;
  std::string begin(max_bytes, '\0');
  begin.resize(FileReader(path).read_up_to(std::as_writable_bytes(std::span(begin))));
  try {
    const auto rows = models::parse_csv(begin.substr(0, begin.find('\n')), path);
    if (rows.empty() || rows[0].size() < 2 || rows[0][0] != "step") return {};
    std::vector<std::string> names;
    for (size_t i = 1; i < rows[0].size(); ++i) names.push_back(models::with_current_metrics(rows[0][i]));
    return names;
  } catch (const Error&) {
    return {};
  }
}

// Returns true if the file's rows are a prefix of this run's table with these columns: the user
// selects other columns now, or the log has grown.
bool is_prefix_of_table(const models::RunLog& log, const std::vector<std::string>& columns, const std::string& path) {
  const FileReader file(path);
  uint64_t compared = 0;  // bytes
  bool same = true;
  write_csv(log, columns, [&](std::string_view line) {
    if (!same || compared == file.size()) return;
    std::string there(std::min<uint64_t>(line.size(), file.size() - compared), '\0');
    file.read_at(compared, std::as_writable_bytes(std::span(there)));
    same = there == line, compared += there.size();
  });
  return same && compared == file.size() && compared > csv_header(columns).size();
}

// Returns true if these were all metrics of the run before it was repeated with more metrics.
bool has_all_metrics(const models::RunLog& log, const std::vector<std::string>& columns) {
  const std::vector<std::string> logged = models::metric_names(log);
  const std::set<std::string> always = {"gradient_norm", "learning_rate", "loss", "step_ms"},
                              all(logged.begin(), logged.end()), its(columns.begin(), columns.end());
  return its.size() == columns.size() && std::includes(its.begin(), its.end(), always.begin(), always.end()) &&
         std::includes(all.begin(), all.end(), its.begin(), its.end());
}

models::OutputKind table_kind(const models::RunLog& log, const std::vector<std::string>& metrics) {
  const models::OutputKind same = models::marked_kind("a CSV file of metrics of this run", csv_header(metrics));
  const auto is_ours = [same, &log](const std::string& path) {
    if (same.is_ours(path)) return true;
    const std::vector<std::string> columns = columns_of(path);
    return !columns.empty() && (has_all_metrics(log, columns) || is_prefix_of_table(log, columns, path));
  };
  return {same.name, is_ours};
}

models::OutputKind events_kind() {
  std::string header;
  models::tensorboard_events({}, {}, [&](std::string_view text) { header += text; });
  return models::marked_kind("an event file written by orrery", header);
}

// Writes in chunks, because the callback's texts are short.
void write_metrics(const std::string& path, const std::function<void(const Write&)>& rows) {
  write_file_atomically(path, [&](FileWriter& file) {
    constexpr size_t at_once = 1 << 18;
    std::string chunk;
    rows([&](std::string_view text) {
      chunk += text;
      if (chunk.size() >= at_once) file.write(chunk), chunk.clear();
    });
    file.write(chunk);
  });
}

}  // namespace

CommandHelp metrics_help(const Arguments&) {
  MetricsSettings settings;
  return {
      "Prints the rows of RUN's metrics.jsonl.  CSV has one column per metric, the step first, and one row per "
      "logged step or validation; numbers read back exactly, missing values are empty, and non-finite values are "
      "nan.  For TensorBoard the tags are the metrics' names, numbers are rounded to f32, and the wall time is the "
      "time of the steps in seconds, so that equal rows give identical bytes.",
      describe(settings_of(settings)), "",
      "orrery metrics runs/mine --format=tensorboard && tensorboard --logdir=runs"};
}

int metrics(const Arguments& arguments) {
  MetricsSettings s;
  const std::vector<std::string> words = read_arguments("metrics", arguments, settings_of(s));
  check_usage(words.size() == 1, "metrics: ", words.size(),
              " runs are given; give one, as in orrery metrics runs/mine");
  const std::string& run = words[0];
  models::check_is_run("metrics", run);
  check(file_exists(run + "/metrics.jsonl"), "metrics: ", run,
        " has no metrics.jsonl; give a run that orrery train has trained");
  const Progress progress("reading the log of " + run, Progress::Results::shown_at_once);
  const auto log = models::RunLog::of_run(run);
  const std::vector<std::string> metrics =
      as_usage([&] { return models::matching_metrics("metrics", models::metric_names(log), s.metrics); });
  const bool csv = s.format == "csv";
  if (csv && s.out.empty()) {
    write_csv(log, metrics, [](std::string_view text) { std::cout << for_output(std::string(text)); });
    std::cout << std::flush;
    return 0;
  }
  std::string path = s.out;
  if (!csv) {
    const std::string folder = s.out.empty() ? run : s.out;
    make_folders(folder);
    path = folder + "/" + event_file;
  }
  models::check_output("metrics", path, csv ? table_kind(log, metrics) : events_kind());
  if (csv) models::check_extension("metrics", path, {".csv", ".txt"});
  int64_t rows = 0;
  write_metrics(path, [&](const Write& write) {
    rows = csv ? write_csv(log, metrics, write) : models::tensorboard_events(log, metrics, write);
  });
  std::cout << for_terminal(path) << ": " << pluralize(rows, "row") << ", "
            << pluralize(static_cast<int64_t>(metrics.size()), "metric") << std::endl;
  return 0;
}

}  // namespace orrery::program
