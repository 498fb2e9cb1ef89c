// orrery bench: the JSON lines that examples/benchmarks/compare.py reads.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/examples/program.h"

namespace {

std::vector<nlohmann::json> bench(const std::vector<std::string>& words) {
  const Outcome outcome = run_orrery(std::vector<std::string>{"bench"} + words +
                                     std::vector<std::string>{"--device", "cpu", "--threads", "2", "--seconds", "0.01",
                                                              "--precision", "highest", "--json"});
  INFO(outcome.err);
  CHECK(outcome.code == 0);
  std::vector<nlohmann::json> lines;
  std::istringstream text(outcome.out);
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace

TEST_CASE("bench: cases have the names, fields and operation counts of the PyTorch benchmark") {
  const auto rows = bench({"rows", "--only", "rms_norm"});
  REQUIRE(rows.size() == 2);
  CHECK(rows[0]["case"] == "rows/rms_norm/4096x1024/forward");
  CHECK(rows[1]["case"] == "rows/rms_norm/4096x1024/both");
  CHECK(rows[0]["unit"] == "GB/s");
  CHECK(rows[0]["threads"] == 2);
  CHECK(rows[0]["dtype"] == "f32-highest");
  const double work = rows[1]["rate"].get<double>() * rows[1]["ms"].get<double>() / 1e3;
  CHECK(work == doctest::Approx(4096 * 1024 * 8 * 2.5 / 1e9).epsilon(1e-2));
  CHECK(rows[0]["ms"].get<double>() <= rows[0]["ms_median"].get<double>());

  const auto products = bench({"gemm", "--only", "768x512x128"});
  REQUIRE(products.size() == 1);
  CHECK(products[0]["case"] == "gemm/768x512x128");
  CHECK(products[0]["unit"] == "GFLOP/s");

  const auto attention = bench({"attention", "--only", "L256/causal"});
  REQUIRE(attention.size() == 2);
  CHECK(attention[0]["case"] == "attention/softmax/L256/causal");
  CHECK(attention[1]["case"] == "attention/relu/L256/causal");
  CHECK(attention[0]["shape"] == nlohmann::json({1, 4, 256, 64}));
  CHECK(attention[0]["forward_ms"].get<double>() > 0);
}

TEST_CASE("bench: attention cases of growing length report their peak memory") {
  const auto growing = bench({"scaling", "--only", "/L1024"});
  REQUIRE(growing.size() == 5);
  CHECK(growing[2]["case"] == "scaling/linear/L1024");
  CHECK(growing[4]["case"] == "scaling/prelu/L1024");
  for (const auto& line : growing) CHECK(line["peak_mb"].get<double>() > 0);
}

TEST_CASE("bench: masks are timed next to the one that hides nothing") {
  const auto masks = bench({"scaling", "--only", "scaling/softmax/L4096/"});
  REQUIRE(masks.size() == 4);
  for (size_t n = 0; const char* mask : {"full", "fixed_blocks", "window", "dilated"})
    CHECK(masks[n++]["case"] == std::string("scaling/softmax/L4096/") + mask);
}

TEST_CASE("bench: the models have as many parameters as those of the PyTorch benchmark") {
  const auto small = bench({"train", "--only", "train/gpt-char-small"});
  REQUIRE(small.size() == 1);
  CHECK(small[0]["parameters"] == 805248);
  const auto pictures = bench({"train", "--only", "train/vit-fashion"}),
             pairs = bench({"train", "--only", "translate"});
  REQUIRE(pictures.size() == 1);
  CHECK(pictures[0]["parameters"] == 454858);
  CHECK(pictures[0]["unit"] == "images/s");
  REQUIRE(pairs.size() == 1);
  CHECK(pairs[0]["parameters"] == 4267776);
  CHECK(small[0]["unit"] == "tokens/s");
  CHECK(bench({"train", "--only", "gpt-char-medium"})[0]["parameters"] == 10750080);
}

TEST_CASE("bench: several groups can be given, and a filter may match no case") {
  CHECK(bench({"rows", "attention", "gemm", "train", "--only", "rows/copy"}).size() == 1);
  CHECK(bench({"rows", "train", "--only", "train/not_in_orrery"}).empty());
  const Outcome readable = run_orrery({"bench", "rows", "--only", "silu", "--seconds", "0.01"});
  CHECK(readable.code == 0);
  CHECK(contains(readable.out, "ms best"));
  CHECK(contains(readable.out, "rows/silu/4096x1024/both"));
}

// A script in place of both programs: its rates are those of its arguments.
TEST_CASE("compare: PyTorch's fastest of three counts, and attention is also compared with deterministic algorithms") {
  const Folder folder;
  const std::string both = folder.write("both", R"(#!/bin/sh
case "$*" in
  *--deterministic*) rate=2 uses='"attention": "flash",' ;;
  *reduce-overhead*) rate=4 uses='"attention": "cudnn",' ;;
  *--compile*) rate=3 uses='"attention": "cudnn",' ;;
  *pytorch_baseline*) rate=1 uses='"attention": "cudnn",' ;;
  *) rate=6 uses= ;;
esac
echo "{\"case\": \"attention/softmax/L256/full\", $uses \"rate\": $rate, \"unit\": \"GFLOP/s\"}"
)");
  const auto compare = [&](const std::string& words) {
    const Outcome outcome = run_shell("chmod +x " + both + "; python3 " + ORRERY_SOURCE_DIR +
                                      "/examples/benchmarks/compare.py attention --orrery " + both + " --python " +
                                      both + " --json " + folder / "table.json" + " " + words);
    INFO(outcome.err);
    REQUIRE(outcome.code == 0);
    const auto row = nlohmann::json::parse(read_file(folder / "table.json"))["rows"][0];
    CHECK(contains(outcome.out, row["ratio"].dump()));
    return row;
  };
  const auto on_gpu = compare("--device cuda --bf16");
  CHECK(on_gpu["pytorch"] == 4);
  CHECK(on_gpu["ratio"] == 1.5);
  CHECK(on_gpu["deterministic_ratio"] == 3);
  CHECK(on_gpu["attention"]["reduce-overhead"] == "cudnn");
  CHECK(on_gpu["attention"]["deterministic"] == "flash");
  const auto on_cpu = compare("");
  CHECK(on_cpu["pytorch"] == 3);
  CHECK_FALSE(on_cpu.contains("deterministic"));
  CHECK(compare("--device cuda --no-compile")["ratio"] == 6);
}
