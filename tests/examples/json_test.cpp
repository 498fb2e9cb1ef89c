// --json: one JSON value on standard output, with unrounded numbers, and text elsewhere.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/tensor/safetensors.h"
#include "examples/orrery/terminal/json_output.h"
#include "examples/orrery/terminal/view_json.h"
#include "tests/examples/pool.h"
#include "tests/examples/training.h"
#include "tests/support/message.h"

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;
using orrery::testing::expect_error;

namespace {

// Returns the only value on standard output.
Json json_of(const Words& words, int code = 0) {
  const Outcome outcome = run_orrery(words);
  CHECK_MESSAGE(outcome.code == code, outcome.err);
  const Json json = Json::parse(outcome.out, nullptr, false);
  CHECK_MESSAGE(!json.is_discarded(), outcome.out);
  return json;
}

// Returns the last row of metrics.jsonl that has a validation.
Json last_validation(const std::string& run) {
  Json last;
  std::istringstream lines(read_file(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (Json row = Json::parse(line); row.contains("validation_loss")) last = std::move(row);
  return last;
}

}  // namespace

TEST_CASE("json: numbers that are not finite are strings") {
  using orrery::program::json_number;
  CHECK(json_number(0.1).dump() == "0.1");
  CHECK(json_number(NAN) == "NaN");
  CHECK(json_number(INFINITY) == "Infinity");
  CHECK(json_number(-INFINITY) == "-Infinity");
}

TEST_CASE("json: show gives the mean of any finite numbers, and NaN for a tensor without a finite number") {
  using orrery::Shape;
  using orrery::Tensor;
  const Folder folder;
  const double huge = std::numeric_limits<double>::max();
  const auto of = [](std::vector<double> x) {
    return Tensor::from(Shape{static_cast<int64_t>(x.size())}, x, orrery::Dtype::f64);
  };
  const std::vector<orrery::NamedTensor> tensors = {
      {"huge", of({huge, -huge, huge / 2})}, {"none", of({NAN, INFINITY})}, {"some", of({1, NAN, 3})}};
  orrery::write_safetensors(folder / "x.safetensors", tensors);
  const Json shown = json_of({"show", folder / "x.safetensors", "--json"})["tensors"];
  REQUIRE(shown.size() == 3);
  for (const Json& each : shown) {
    if (each["name"] == "huge") {
      CHECK(each["mean"].get<double>() == doctest::Approx(huge / 6).epsilon(1e-12));
      CHECK(each["min"] == -huge);
    } else if (each["name"] == "none") {
      for (const char* const key : {"min", "max", "mean"}) CHECK(each[key] == "NaN");
      CHECK(each["non_finite"] == 2);
    } else {
      CHECK(each["mean"] == 2);
      CHECK(each["non_finite"] == 1);
    }
  }
}

TEST_CASE("json: train prints the run, its losses and its files; messages go to standard error") {
  const Folder folder;
  const Outcome outcome = run_orrery(train_tiny(folder, "run", {"--json"}));
  REQUIRE(is_complete(outcome));
  const Json json = Json::parse(last_line(outcome.out), nullptr, false);
  REQUIRE_MESSAGE(json.is_object(), outcome.out);
  CHECK(outcome.out == last_line(outcome.out) + "\n");
  CHECK(contains(outcome.err, "files:"));
  CHECK(json["run"] == folder / "run");
  CHECK(json["state"] == "complete");
  CHECK(json["step"] == 4);
  CHECK(json["steps"] == 4);
  CHECK(json["exit_code"] == outcome.code);
  CHECK(json["validation_loss"] == last_validation(folder / "run")["validation_loss"]);  // all digits
  CHECK(json["metrics"].contains("bits_per_character"));
  CHECK(json["checkpoint"] == folder / "run/step_000004");
  bool has_log = false;
  for (const Json& file : json["files"]) has_log = has_log || file == folder / "run/metrics.jsonl";
  CHECK(has_log);
  CHECK(!contains(read_file(folder / "run/settings.toml"), "json"));          // not a setting of the run
  const Outcome failed = run_orrery(train_tiny(folder, "run", {"--json"}));   // the folder holds a run
  expect_error(failed).names(folder / "run");
  CHECK(failed.out.empty());
}

TEST_CASE("json: evaluate, compare and show agree with the run") {
  const Folder folder;
  const std::string a = trained_run(folder, "a", {}, false),
                    b = trained_run(folder, "b", {"--learning_rate=0.01"}, false);
  const Json evaluated = json_of({"evaluate", "--checkpoint=" + a, "--json=yes"});
  const double loss = evaluated["loss"];
  CHECK(loss == doctest::Approx(last_validation(a)["validation_loss"].get<double>()).epsilon(1e-6));
  CHECK(evaluated["perplexity"].get<double>() == doctest::Approx(std::exp(loss)));
  CHECK(evaluated["unit"] == "tokens");
  CHECK(evaluated["metrics"].is_object());

  const Json compared = json_of({"compare", a, b, "--json"});
  CHECK(compared["runs"][0]["run"] == a);
  CHECK(compared["runs"][1]["step"] == 4);
  CHECK(compared["settings"].dump() == "{\"learning_rate\":[\"0.001\",\"0.01\"]}");
  const Json& with_first = compared["with_first"][0];
  CHECK(with_first["run"] == b);
  CHECK(with_first["metrics"]["first_difference"]["step"].get<int64_t>() >= 1);
  CHECK(!with_first["parameters"]["differing"].empty());
  CHECK(json_of({"compare", a, a, "--json"})["with_first"][0]["metrics"]["first_difference"].is_null());

  const Json shown = json_of({"show", a, "--json"});
  CHECK(shown["path"] == a);
  int64_t numbers = 0;
  for (const Json& tensor : shown["tensors"]) {
    int64_t count = 1;
    for (const Json& size : tensor["shape"]) count *= size.get<int64_t>();
    numbers += count;
    CHECK(tensor["min"].get<double>() <= tensor["max"].get<double>());
  }
  CHECK(shown["numbers"] == numbers);
  CHECK(json_of({"show", a, "--tensor=token_embedding.weight", "--json"})["tensors"].size() == 1);
}

TEST_CASE("json: inspect prints the values of its views") {
  const Folder folder;
  const Words words = {"inspect", trained_run(folder, "run", {}, false), "--text=aeea", "--analysis=attention, heads",
                       "--hooks=blocks.*.attention.weights"};
  const Json json = json_of(words + Words{"--json"});
  CHECK(json["values"][0]["name"] == "blocks.0.attention.weights");
  bool has_map = false;
  for (const Json& view : json["views"]) {
    if (view["kind"] != "map") continue;
    has_map = true;
    const Json& rows = view["maps"][0]["values"];
    CHECK(rows.size() == view["rows"].size());
    CHECK(rows[0].size() == view["columns"].size());
  }
  CHECK(has_map);
  bool has_metric = false;
  for (const auto& [name, value] : json["metrics"].items()) has_metric = has_metric || name.starts_with("heads/");
  CHECK(has_metric);
  const Outcome text = run_orrery(words);
  CHECK(contains(text.out, "blocks.0.attention.weights"));
}

TEST_CASE("json: every kind of view has its values; missing values are null") {
  using namespace orrery::models;
  const auto json = [](auto shown) {
    return orrery::program::view_json({"Group", "name", "Title", "said", std::move(shown), false, {{"a/b", INFINITY}}});
  };
  const Json bars = json(BarView{"size", {{.name = "x", .value = 0.1}}});
  CHECK(bars["analysis"] == "Group");
  CHECK(bars["metrics"]["a/b"] == "Infinity");
  CHECK(bars["bars"][0]["value"] == 0.1);
  CHECK(bars["bars"][0]["low"].is_null());
  const Json table = json(TableView{{"a", "b"}, "lr", {{"1", "2"}}});
  CHECK(table["rows"].dump() == "[[\"1\",\"2\"]]");
  const Json lines = json(LineView{"x", "y", {{"line", {0, 1}, {2, NAN}}}});
  CHECK(lines["lines"][0]["y"].dump() == "[2.0,null]");
  MapView map{.quantity = "p", .rows = {"r"}, .columns = {"c", "d"}, .values = {}};
  map.values = orrery::Tensor::from(orrery::Shape{1, 1, 2}, std::vector<double>{0.25, NAN}, orrery::Dtype::f64);
  CHECK(json(map)["maps"][0]["values"].dump() == "[[0.25,null]]");
  LensView lens;
  lens.rows = {"r"}, lens.columns = {"c", "d"}, lens.words = {"x", "y"}, lens.targets = {"y", ""};
  lens.probability = lens.log_probability = lens.rank = map.values[0];
  CHECK(json(lens)["words"].dump() == R"([["x","y"]])");
  CHECK(json(lens)["rank"].dump() == "[[0.25,null]]");
  CHECK(json(TokensView{"-ln p", {"a", "b"}, {NAN, 2}})["values"].dump() == "[null,2.0]");
  ChoicesView choices;
  choices.positions = {"a"}, choices.choices = {{{"x", 0.5}}}, choices.targets = {{"", NAN}};
  CHECK(json(choices)["choices"].dump() == R"([[{"name":"x","probability":0.5}]])");
  CHECK(json(choices)["targets"][0].is_null());
  CHECK(json(ImageView{orrery::Tensor::zeros(orrery::Shape{2, 3, 1}), {"the image"}})["shape"].dump() == "[2,3,1]");
}

TEST_CASE("json: list prints every family, or only the requested names") {
  const Json all = json_of({"list", "--json"});
  CHECK(all.size() > 5);
  const Json silu = json_of({"list", "swish", "--json"});
  REQUIRE(silu.size() == 1);
  CHECK(silu[0]["family"] == "activation");
  REQUIRE(silu[0]["entries"].size() == 1);
  CHECK(silu[0]["entries"][0]["name"] == "silu");
  CHECK(silu[0]["entries"][0]["properties"]["kinks"] == "none");
  CHECK(json_of({"list", "schedules", "--json"})[0]["entries"].size() > 1);
  expect_error(run_orrery({"list", "--json", "--markdown"})).names("--markdown").names("--json");
}

TEST_CASE("json: sweep prints its rows and runs") {
  const Folder folder;
  const Json json = json_of(sweep_of(folder, {"--seed={1,2}", "--learning_rate={0.001,0.01}", "--json"}));
  CHECK(json["metric"] == "validation_loss");
  CHECK(json["reference"] == "learning_rate=0.001");
  REQUIRE(json["rows"].size() == 2);
  REQUIRE(json["runs"].size() == 4);
  std::map<std::string, double> sums;
  for (const Json& run : json["runs"])
    sums[run["row"].get<std::string>()] += run["metrics"]["validation_loss"].get<double>();
  for (const Json& row : json["rows"])
    CHECK(row["mean"].get<double>() == doctest::Approx(sums.at(row["row"].get<std::string>()) / 2).epsilon(1e-12));
  CHECK(json["rows"][0]["difference"].is_null());
  CHECK(json["rows"][1]["difference"].is_number());
}
