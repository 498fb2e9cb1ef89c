// orrery metrics: the rows of a run as CSV, and as TensorBoard records, decoded here.
#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>

#include "models/interop/tensorboard.h"
#include "tests/examples/training.h"
#include "tests/support/logged_rows.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using orrery::testing::expect_error;
using orrery::testing::logged_rows;
using orrery::testing::Message;

namespace {

const std::string event_file = "events.out.tfevents.0.orrery";

// CRC32C bit by bit, of the polynomial x^32 + x^28 + ... + 1 with the lowest power first.
uint32_t slow_crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const bool odd = ((crc ^ (static_cast<unsigned char>(c) >> bit)) & 1) != 0;
      crc = (crc >> 1) ^ (odd ? 0x82F63B78u : 0u);
    }
  return ~crc;
}
uint32_t masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u; }

struct Bytes {  // read from the front
  std::string_view rest;
  std::string_view take(size_t count) {
    REQUIRE(rest.size() >= count);
    const std::string_view taken = rest.substr(0, count);
    rest.remove_prefix(count);
    return taken;
  }
  template <class T>
  T number() {
    T x;
    std::memcpy(&x, take(sizeof(T)).data(), sizeof(T));
    return x;
  }
  uint64_t varint() {
    uint64_t x = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      x |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return x;
    }
  }
};

struct Event {
  double wall_time = -1;
  int64_t step = 0;
  std::string version;
  std::map<std::string, float> values;
};

std::pair<std::string, float> decode_value(Bytes bytes) {
  std::pair<std::string, float> value;
  while (!bytes.rest.empty()) {
    const uint64_t key = bytes.varint();
    if (key == (1 << 3 | 2))
      value.first = bytes.take(bytes.varint());
    else if (key == (2 << 3 | 5))
      value.second = bytes.number<float>();
    else
      FAIL("field " << key);
  }
  return value;
}
Event decode_event(Bytes bytes) {
  Event event;
  while (!bytes.rest.empty()) {
    const uint64_t key = bytes.varint();
    if (key == (1 << 3 | 1)) {
      event.wall_time = bytes.number<double>();
    } else if (key == (2 << 3 | 0)) {
      event.step = static_cast<int64_t>(bytes.varint());
    } else if (key == (3 << 3 | 2)) {
      event.version = bytes.take(bytes.varint());
    } else if (key == (5 << 3 | 2)) {
      Bytes summary{bytes.take(bytes.varint())};
      while (!summary.rest.empty()) {
        REQUIRE(summary.varint() == (1 << 3 | 2));
        event.values.insert(decode_value({summary.take(summary.varint())}));
      }
    } else {
      FAIL("field " << key);
    }
  }
  return event;
}
std::vector<Event> decode(const std::string& file) {
  std::vector<Event> events;
  for (Bytes bytes{file}; !bytes.rest.empty();) {
    const std::string_view length = bytes.rest.substr(0, 8);
    const auto size = bytes.number<uint64_t>();
    CHECK(bytes.number<uint32_t>() == masked(slow_crc32c(length)));
    const std::string_view data = bytes.take(size);
    CHECK(bytes.number<uint32_t>() == masked(slow_crc32c(data)));
    events.push_back(decode_event({data}));
  }
  return events;
}

std::vector<Words> csv(const std::string& text) {  // for fields without commas
  std::vector<Words> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    rows.emplace_back();
    std::istringstream fields(line + ",");
    for (std::string field; std::getline(fields, field, ',');) rows.back().push_back(field);
  }
  return rows;
}

}  // namespace

TEST_CASE("metrics: CRC32C of known strings has the published values") {
  using orrery::models::crc32c;
  CHECK(crc32c("123456789") == 0xE3069283u);
  CHECK(crc32c("") == 0u);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAu);  // RFC 3720, B.4
  CHECK(crc32c(std::string(32, '\xFF')) == 0x62A8AB43u);
  CHECK(slow_crc32c("123456789") == 0xE3069283u);
}

TEST_CASE("metrics: CSV has a column for each metric and keeps all digits") {
  const Folder folder;
  const std::string run = trained_run(folder, "run", {"--evaluate_every=2"});
  const auto rows = logged_rows(run);
  REQUIRE(rows.size() == 6);  // four steps, two validations
  const Outcome printed = run_orrery({"metrics", run});
  REQUIRE_MESSAGE(printed.code == 0, printed.err);
  const std::vector<Words> table = csv(printed.out);
  REQUIRE(table.size() == 7);
  CHECK(table[0][0] == "step");
  size_t metrics = 0, missing = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    REQUIRE(table[i + 1].size() == table[0].size());
    for (size_t c = 0; c < table[0].size(); ++c) {
      const std::string& field = table[i + 1][c];
      if (rows[i].contains(table[0][c])) {
        ++metrics;
        CHECK(std::stod(field) == rows[i].at(table[0][c]));
      } else {
        ++missing;
        CHECK(field.empty());
      }
    }
  }
  size_t logged = 0;
  for (const auto& row : rows) logged += row.size();
  CHECK(metrics == logged);
  CHECK(missing > 0);

  const std::string file = folder / "out.csv";
  const Outcome written = run_orrery({"metrics", run, "--format=csv", "--out=" + file});
  Message(last_line(written.out)).names(file).value(6);
  CHECK(read_file(file) == printed.out);
  CHECK(csv(run_orrery({"metrics", run, "--metrics=loss, g*t_nor?"}).out)[0] == Words{"step", "gradient_norm", "loss"});

  // Any key, values that are not numbers, fields that need quotes, and an incomplete last line.
  fs::create_directory(folder / "odd");
  folder.write(
      "odd/metrics.jsonl",
      "{\"step\":1,\"entropy/blocks.1.attention.3\":0.1,\"a,b\":null}\n{\"step\":2,\"loss\":1e-300}\n{\"step\":3,");
  CHECK(run_orrery({"metrics", folder / "odd"}).out ==
        "step,\"a,b\",entropy/blocks.1.attention.3,loss\n1,nan,0.1,\n2,,,1e-300\n");
}

TEST_CASE("metrics: a log with former names gives the same table, which replaces a table with former names") {
  const Folder folder;
  const std::string run = trained_run(folder, "run", {"--evaluate_every=2"}),
                    printed = run_orrery({"metrics", run}).out;
  const auto with_former_name = [](std::string text) {
    for (size_t at; (at = text.find("step_ms")) != std::string::npos;) text.replace(at, 7, "milliseconds");
    return text;
  };
  folder.write("run/metrics.jsonl", with_former_name(read_file(run + "/metrics.jsonl")));
  CHECK(run_orrery({"metrics", run}).out == printed);
  for (const char* pattern : {"milliseconds", "step_ms"})
    CHECK(csv(run_orrery({"metrics", run, std::string("--metrics=") + pattern}).out)[0] == Words{"step", "step_ms"});
  const std::string table = folder.write("old.csv", with_former_name(printed));
  CHECK(run_orrery({"metrics", run, "--out=" + table}).code == 0);
  CHECK(read_file(table) == printed);
}

TEST_CASE("metrics: a terminal shows escapes in metric names escaped, and a pipe gets them unchanged") {
  const Folder folder;
  fs::create_directory(folder / "run");
  folder.write("run/metrics.jsonl", "{\"step\":1,\"\\u001b[31mloss\":2.5}\n");
  CHECK(run_orrery({"metrics", folder / "run"}).out == "step,\x1b[31mloss\n1,2.5\n");
  if (const auto shown = run_on_terminal("\"$ORRERY\" metrics '" + (folder / "run") + "'"))
    CHECK(shown->out == "step,\\x1b[31mloss\r\n1,2.5\r\n");
}

TEST_CASE("metrics: TensorBoard records hold each metric of each row; a second export is identical") {
  const Folder folder;
  const std::string run = trained_run(folder, "run", {"--evaluate_every=2"}), out = folder / "board";
  const Outcome written = run_orrery({"metrics", run, "--format=tensorboard", "--out=" + out});
  REQUIRE_MESSAGE(written.code == 0, written.err);
  Message(last_line(written.out)).names(out + "/" + event_file).value(6);
  const std::string file = read_file(out + "/" + event_file);
  const std::vector<Event> events = decode(file);
  const auto rows = logged_rows(run);
  REQUIRE(events.size() == rows.size() + 1);
  CHECK(events[0].version == "brain.Event:2");
  CHECK(events[0].values.empty());
  double seconds = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Event& event = events[i + 1];
    if (rows[i].contains("step_ms")) seconds += rows[i].at("step_ms") / 1000;
    CHECK(event.wall_time == seconds);
    CHECK(static_cast<double>(event.step) == rows[i].at("step"));
    CHECK(event.values.size() + 1 == rows[i].size());
    for (const auto& [tag, value] : event.values) CHECK(value == static_cast<float>(rows[i].at(tag)));
  }
  // Without --out the file is in the run's folder.
  REQUIRE(run_orrery({"metrics", run, "--format=tensorboard"}).code == 0);
  CHECK(read_file(run + "/" + event_file) == file);
  REQUIRE(run_orrery({"metrics", run, "--format=tensorboard", "--metrics=validation_*", "--out=" + out}).code == 0);
  const std::vector<Event> few = decode(read_file(out + "/" + event_file));
  REQUIRE(few.size() == 3);
  CHECK(few[2].step == 4);
  CHECK(few[2].values.size() == 1);
  CHECK(few[2].wall_time == seconds);
}

TEST_CASE("metrics: invalid arguments, missing logs and damaged rows are refused") {
  const Folder folder;
  const std::string run = trained_run(folder, "run", {"--evaluate_every=2"});
  const auto refusal = [&](const Words& words) {
    const Outcome outcome = run_orrery(Words{"metrics"} + words);
    CHECK(outcome.out.empty());
    return expect_error(outcome).names("metrics");
  };
  refusal({run, "--metrics=los"}).names("metric").value("los").offers("loss");
  refusal({run, "--format=xml"}).names("format").value("xml").offers("csv, tensorboard");
  refusal({}).value(0).offers("orrery metrics runs/mine");
  refusal({folder / "none"}).value(folder / "none").offers("orrery train --out");
  refusal({folder.path()}).value(folder.path()).offers("settings.toml");
  fs::rename(run + "/metrics.jsonl", folder / "kept");
  refusal({run}).value(run).names("metrics.jsonl");
  fs::create_directory(folder / "broken");
  folder.write("broken/metrics.jsonl", "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\"\n{\"step\":3,\"loss\":2}\n");
  const Outcome broken = run_orrery({"metrics", folder / "broken"});
  CHECK(broken.out.empty());
  expect_error(broken).names("broken/metrics.jsonl").value("line 2, column 17");
}
