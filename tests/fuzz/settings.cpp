// Settings: specs, command line arguments, TOML files.
#include "models/training/settings.h"
#include "engine/settings/config.h"
#include "examples/orrery/terminal/arguments.h"
#include "models/settings/settings_file.h"
#include "tests/fuzz/format.h"

namespace {

using namespace fuzz;
using orrery::models::TrainSettings;

const std::vector<std::string> words = {"softmax",
                                        "pointwise(",
                                        "relu",
                                        "dense(",
                                        "gated(silu)",
                                        "learned(0.5)",
                                        "qk_norm=",
                                        "span=",
                                        "adaptive_span(64)",
                                        "(",
                                        ")",
                                        "=",
                                        ",",
                                        ".",
                                        "list(1, 2)",
                                        "yes",
                                        "no",
                                        "attention",
                                        "optimizer.",
                                        "steps",
                                        "losses.",
                                        "width",
                                        "model",
                                        "1e6",
                                        "-1",
                                        "--",
                                        "--config=",
                                        "adamw(beta1=0.9)",
                                        "[",
                                        "]",
                                        "{",
                                        "}",
                                        "\"",
                                        "'''",
                                        "\"\"\"",
                                        "\n",
                                        "a.b.c = ",
                                        "0x7fffffffffffffff",
                                        "1979-05-27T07:32:00Z",
                                        "inf",
                                        "\\u",
                                        "name = "};

void read_spec(const std::string&, std::string_view bytes) {
  const orrery::Spec spec = orrery::parse_spec(bytes);
  promise(orrery::parse_spec(orrery::print(spec)) == spec, "a printed spec is read back differently");
}

REGISTER_FORMAT(spec, {.name = "spec",
                       .readers = {"engine/settings/config.cpp", "engine/settings/spec.cpp"},
                       .read = read_spec,
                       .memory_multiple = 512,
                       .memory_base = 1 << 16,
                       .words = words});

// Accepted settings must be equal after writing and reading.
void promise_same_settings(const TrainSettings& settings) {
  const orrery::Assignments all = orrery::list_settings(settings);
  promise(orrery::list_settings(orrery::models::make_settings(all)) == all,
          "listed settings are read back differently");
}

// One argument per line, as a shell passes them.
void read_command_line(const std::string&, std::string_view bytes) {
  std::vector<std::string> given;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    given.emplace_back(bytes.substr(at, end - at));
    at = end + 1;
  }
  TrainSettings known;
  const auto parsed = orrery::program::parse_arguments("train", given, orrery::settings_of(known));
  promise_same_settings(orrery::models::make_settings(parsed.assignments));
}

REGISTER_FORMAT(command_line, {.name = "command_line",
                               .readers = {"examples/orrery/terminal/arguments.cpp", "engine/settings/config.cpp"},
                               .read = read_command_line,
                               .memory_multiple = 2048,
                               .memory_base = 1 << 20,
                               .words = words});

void read_toml(const std::string& folder, std::string_view bytes) {
  const std::string path = folder + "/given.toml", again = folder + "/again.toml";
  put(path, bytes);
  TrainSettings known;
  const orrery::Assignments read =
      orrery::models::read_settings_file(path, orrery::settings_of(known), orrery::models::foreign_keys());
  const TrainSettings settings = orrery::models::make_settings(read);
  const orrery::Assignments all = orrery::list_settings(settings);
  orrery::models::write_settings_file(again, all);
  TrainSettings scratch;
  promise(orrery::models::read_settings_file(again, orrery::settings_of(scratch)) == all,
          "written and read again they are other settings");
  promise_same_settings(settings);
}

REGISTER_FORMAT(toml, {.name = "toml",
                       .readers = {"models/settings/settings_file.cpp", "models/settings/toml.cpp"},
                       .read = read_toml,
                       .memory_multiple = 2048,
                       .memory_base = 1 << 20,
                       .words = words});

}  // namespace
