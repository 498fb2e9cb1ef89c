// Commands that read a run's log take no more memory for many rows than for few.
#include <doctest/doctest.h>

#include <chrono>
#include <fstream>

#include "models/study/run_log.h"
#include "tests/examples/program.h"
#include "tests/support/sanitizers.h"

using Words = std::vector<std::string>;

namespace {

// Writes rows of steps as training does, and a validation after every 100th step.
void write_log(const std::string& run, int64_t rows) {
  std::ofstream out(run + "/metrics.jsonl", std::ios::binary);
  for (int64_t step = 1; step <= rows; ++step) {
    const std::string number = std::to_string(step);
    out << "{\"step\":" << number << ",\"loss\":2." << number << ",\"gradient_norm\":0." << number
        << ",\"learning_rate\":0.00025,\"step_ms\":1.5,\"tokens_per_second\":12345.678,\"multiply_adds\":123456,"
           "\"entropy/blocks.0.attention.0\":1.25,\"entropy/blocks.0.attention.1\":null}\n";
    if (step % 100 == 0) out << "{\"step\":" << number << ",\"validation_loss\":2.5,\"bits_per_character\":1.5}\n";
  }
}

}  // namespace

TEST_CASE("long logs: report, compare, metrics and resuming need no more memory for more rows" *
          doctest::skip(orrery::address_sanitizer)) {
  constexpr int64_t few = 1'000, many = 150'000, slack = 25'000'000;
  const Folder folder;
  const std::string text = folder.write("text.txt", tiny_text());
  const auto run = [&](int64_t rows, const std::string& name) { return folder / (name + std::to_string(rows)); };
  const Words train = Words{"train", "--data=" + text, "--metrics=none"} + tiny;
  for (const int64_t rows : {few, many})
    for (const char* name : {"a", "b"}) {
      REQUIRE(run_orrery(train + Words{"--out=" + run(rows, name)}).code == 0);
      write_log(run(rows, name), rows);
    }
  const auto check_same = [&](const char* what, const auto& words) {
    const Outcome of_few = run_orrery(words(few)), of_many = run_orrery(words(many));
    CAPTURE(what);
    CHECK_MESSAGE(of_few.code == 0, of_few.err);
    CHECK_MESSAGE(of_many.code == 0, of_many.err);
    CHECK(of_many.peak < of_few.peak + slack);
  };
  check_same("report", [&](int64_t n) { return Words{"report", run(n, "a"), "--out=" + (folder / "a.html")}; });
  check_same("compare", [&](int64_t n) { return Words{"compare", run(n, "a"), run(n, "b")}; });
  check_same("metrics", [&](int64_t n) { return Words{"metrics", run(n, "a"), "--out=" + (folder / "a.csv")}; });
  check_same("tensorboard", [&](int64_t n) {
    return Words{"metrics", run(n, "a"), "--format=tensorboard", "--out=" + (folder / "events")};
  });
  check_same("resume", [&](int64_t n) { return train + Words{"--out=" + run(n, "a"), "--resume=yes", "--steps=5"}; });
}

TEST_CASE("long logs: the fast row reader and the general parser return the same rows") {
  using namespace orrery::models;
  const Folder folder;
  const std::string flat =
      R"({"step":1,"loss":2.5,"gradient_norm":null,"a/b.0":-1e-7,"multiply_adds":123456789012345678}
{"step":2,"loss":0.1,"gradient_norm":-0,"a/b.0":1E+2,"multiply_adds":-3}
{"loss":0.25,"step":3}
{"step":4,"gradient_norm":4.9e-324,"loss":17976931348623157e292}
{"step":4,"validation_loss":3}
{"step":5,"loss":3,"gradient_norm":1e-400}
)";
  std::string spaced;  // read by the general parser
  for (const char c : flat) spaced += c == ':' ? std::string(": ") : std::string(1, c);
  const auto rows_of = [&](const std::string& log) {
    folder.write("metrics.jsonl", log);
    return RunLog::of_run(folder.path()).rows();
  };
  const std::vector<LogRow> one = rows_of(flat), other = rows_of(spaced);
  REQUIRE(one.size() == 6);
  REQUIRE(other.size() == 6);
  for (size_t i = 0; i < one.size(); ++i) {
    CHECK(one[i].step == other[i].step);
    REQUIRE(one[i].metrics.size() == other[i].metrics.size());
    for (const auto& [name, value] : one[i].metrics) CHECK(same_bits(value, other[i].metrics.at(name)));
  }
  CHECK(one[2].metrics == std::map<std::string, double>{{"loss", 0.25}});
  for (const char* wrong : {"{\"step\":1,\"loss\":01}\n", "{\"step\":1,\"loss\":1.}\n", "{\"step\":1,\"loss\":.5}\n",
                            "{\"step\":1,\"loss\":+1}\n", "{\"step\":1.0}\n", "{\"step\":1,}\n", "{\"step\":1}}\n",
                            "{\"step\":1,\"loss\":1e999}\n", "{\"step\":1,\"loss\":nan}\n", "\n"}) {
    CAPTURE(wrong);
    CHECK_THROWS(rows_of(wrong));
  }
}

TEST_CASE("long logs: one row with many metrics is parsed about as fast as many rows with few") {
  using Clock = std::chrono::steady_clock;
  const Folder folder;
  const auto seconds_of = [&](int64_t rows, int64_t metrics) {
    {
      std::ofstream out(folder / "metrics.jsonl", std::ios::binary);
      for (int64_t step = 1; step <= rows; ++step) {
        out << "{\"step\": " << step;
        for (int64_t i = 0; i < metrics; ++i) out << ", \"entropy/blocks." << i << "\": 0.5";
        out << "}\n";
      }
    }
    const auto log = orrery::models::RunLog::of_run(folder.path());
    double fastest = 1e9;
    for (int time = 0; time < 3; ++time) {
      const Clock::time_point begin = Clock::now();
      int64_t all = 0;
      log.each([&](const orrery::models::LogRow& row) { all += static_cast<int64_t>(row.metrics.size()); });
      fastest = std::min(fastest, std::chrono::duration<double>(Clock::now() - begin).count());
      REQUIRE(all == rows * metrics);
    }
    return fastest;
  };
  const double few = seconds_of(56, 250), many = seconds_of(1, 14'000);  // 56 times as long if each scans all others
  CHECK_MESSAGE(many < 8 * few, many, " s and ", few, " s");
}
