// orrery metrics: what a run has noted, for other programs.
#include <cmath>
#include <iostream>

#include "engine/base/files.h"
#include "examples/orrery/arguments.h"
#include "examples/orrery/commands.h"
#include "examples/orrery/table.h"
#include "models/exchange/tensorboard.h"
#include "models/output_file.h"
#include "models/study/csv.h"
#include "models/study/figure_names.h"
#include "models/study/run_files.h"

namespace orrery::program {
namespace {

using models::LogRow;

// TensorBoard takes what has "tfevents" in its name.
constexpr const char* event_file = "events.out.tfevents.0.orrery";

struct MetricsSettings {
  std::string format = "csv", out, figures;

  template <class V>
  void visit(V& v) {
    v("format", format, "csv or tensorboard", one_of({"csv", "tensorboard"}));
    v("out", out,
      text("csv: a file; none: the standard output.  tensorboard: a folder, for ", event_file, "; none: the run's"));
    v("figures", figures, "which: PATTERN, ..., with * for any characters, as in 'loss,gradient_norm*'; none: all");
  }
};

using Write = std::function<void(std::string_view)>;

std::string csv_header(const std::vector<std::string>& figures) {
  std::vector<std::string> names = {"step"};
  names.insert(names.end(), figures.begin(), figures.end());
  return models::csv_line(names);
}

// Returns how many rows there are.
int64_t write_csv(const models::RunLog& log, const std::vector<std::string>& figures, const Write& write) {
  int64_t rows = 0;
  write(csv_header(figures));
  log.each([&](const LogRow& row) {
    ++rows;
    std::vector<std::string> fields = {std::to_string(row.step)};
    for (const std::string& name : figures) {
      const auto found = row.figures.find(name);
      fields.push_back(found == row.figures.end()  ? ""
                       : std::isnan(found->second) ? "nan"
                                                   : print_number(found->second));
    }
    write(models::csv_line(fields));
  });
  return rows;
}

// In pieces that a file takes at once.
void write_metrics(const std::string& path, const std::function<void(const Write&)>& rows) {
  write_file_atomically(path, [&](FileWriter& file) {
    constexpr size_t at_once = 1 << 18;
    std::string piece;
    rows([&](std::string_view text) {
      piece += text;
      if (piece.size() >= at_once) file.write(piece), piece.clear();
    });
    file.write(piece);
  });
}

}  // namespace

std::string metrics_help(const Arguments&) {
  MetricsSettings settings;
  return "orrery metrics RUN: the rows of its metrics.jsonl.  As CSV there is a column for each figure that ever "
         "comes,\n"
         "step first, and a row for each row, of steps and of validations, with numbers that read back as they were;\n"
         "what a row does not have is empty, what is not finite is nan.  For TensorBoard the figures' names are the "
         "tags,\n"
         "numbers are rounded to f32, and the wall time is the seconds that the steps have taken, so that the same "
         "rows\n"
         "give the same bytes.\n" +
         describe(settings_of(settings)) +
         "\nExample: orrery metrics runs/mine --format=tensorboard && tensorboard --logdir=runs";
}

int metrics(const Arguments& arguments) {
  MetricsSettings s;
  const std::vector<std::string> words = read_arguments("metrics", arguments, settings_of(s));
  check(words.size() == 1, "metrics: ", words.size(), " runs are given; give one, as in orrery metrics runs/mine");
  const std::string& run = words[0];
  models::check_is_run("metrics", run);
  check(file_exists(run + "/metrics.jsonl"), "metrics: ", run, " has no metrics.jsonl; it has not been trained here");
  const auto log = models::RunLog::of_run(run);
  const std::vector<std::string> figures = models::fitting_figures("metrics", models::figure_names(log), s.figures);
  const bool csv = s.format == "csv";
  if (csv && s.out.empty()) {
    write_csv(log, figures, [](std::string_view text) { std::cout << text; });
    std::cout << std::flush;
    return 0;
  }
  std::string path = s.out;
  if (!csv) {
    const std::string folder = s.out.empty() ? run : s.out;
    make_folders(folder);
    path = folder + "/" + event_file;
  }
  std::string header;
  const Write into_header = [&](std::string_view text) { header += text; };
  if (csv)
    into_header(csv_header(figures));
  else
    models::tensorboard_events({}, {}, into_header);
  models::check_output("metrics", path,
                       models::marked_kind(csv ? "a CSV file of these figures" : "events that orrery wrote", header));
  int64_t rows = 0;
  write_metrics(path, [&](const Write& write) {
    rows = csv ? write_csv(log, figures, write) : models::tensorboard_events(log, figures, write);
  });
  std::cout << for_terminal(path) << ": " << counted(rows, "row") << ", "
            << counted(static_cast<int64_t>(figures.size()), "figure") << std::endl;
  return 0;
}

}  // namespace orrery::program
