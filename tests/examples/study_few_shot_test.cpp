// Claims about linear probes on trained models: the metric few_shot/NAME and the table [few_shot].
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/examples/study.h"
#include "tests/support/message.h"

using orrery::testing::expect_error;
using orrery::testing::Message;

namespace {

// A table of texts of the letters of tiny_text; the last letter is the label.
std::string table_of_texts(const std::string& letters) {
  std::string table = "text,label\n";
  for (int i = 0; i < 10; ++i)
    for (const char end : {'a', 'q', 'z'})
      table += std::string(static_cast<size_t>(1 + i % 5), letters[static_cast<size_t>(i) % letters.size()]) + end +
               "," + end + "\n";
  return table;
}

}  // namespace

TEST_CASE("study: a claim can use the accuracy of linear probes on the trained models") {
  const Folder folder;
  const std::string first = folder.write("first.csv", table_of_texts("bkm")),
                    second = folder.write("second.csv", table_of_texts("wxr"));
  const std::string head = "kind = \"trained\"\nseeds = [1, 2]\nmetric = \"mean(few_shot/*)\"\n",
                    sets = "[few_shot]\ndata = \"" + first + ", " + second + "\"\nshots = 4\nseeds = 2\n";
  const Outcome outcome =
      run_study(folder, claim_text(folder, head + "refuted_if = [\"few_shot/first.csv: relu > 99\", "
                                                  "\"relu < softmax - 99\"]",
                                   two + sets));
  INFO(outcome.out, outcome.err);
  REQUIRE(outcome.code == 0);
  Message(outcome.out).value("verdict: shown");
  // The values equal those of evaluate for this run.
  const std::string samples = read_file(folder / "study/samples.csv"), runs = read_file(folder / "study/runs.csv");
  const size_t line = runs.find("relu,1,") + 7;
  const std::string run = folder / ("pool/" + runs.substr(line, runs.find(',', line) - line));
  double sum = 0;
  for (const std::string& set : {first, second}) {
    const Outcome evaluated = run_orrery({"evaluate", run, "--few_shot=4", "--seeds=2", "--json", "--data=" + set});
    REQUIRE_MESSAGE(evaluated.code == 0, evaluated.err);
    sum += nlohmann::json::parse(evaluated.out)["few_shot"]["accuracy"].get<double>();
  }
  const std::string name = "mean(few_shot/*),relu,,1,";
  const size_t at = samples.find(name);
  REQUIRE_MESSAGE(at != std::string::npos, samples);
  CHECK(std::stod(samples.substr(at + name.size())) == doctest::Approx(sum / 2).epsilon(1e-6));

  const auto refusal = [&](const std::string& top, const std::string& tables) {
    const std::string condition = "refuted_if = \"relu < softmax - 2\"";
    const Folder untrained;
    const Outcome refused = run_study(untrained, claim_text(untrained, top + condition, tables));
    CHECK(!std::filesystem::exists(untrained / "pool"));
    return expect_error(refused);
  };
  const auto with_data = [&](const std::string& data, const std::string& more = "") {
    return two + "[few_shot]\ndata = \"" + data + "\"\n" + more;
  };
  const std::string derived = "kind = \"derived\"\nseeds = [1, 2]\nmetric = \"few_shot/first.csv\"\n";
  refusal(head, two).names("claim.toml").value("few_shot/NAME").offers("[few_shot]");
  refusal(trained, two + sets).names("[few_shot]").value("not used").offers("leave it out");
  refusal(derived, two + sets).names("[few_shot]").offers("trained").value("derived");
  refusal(head, two + "[few_shot]\nshots = 2\n").names("[few_shot]").value("no data").offers("data =");
  refusal(head, with_data(first, "shot = 3\n")).value("'shot'").offers("'shots'");
  refusal(head, with_data(first, "shots = 0\n")).names("shots").value(0);
  refusal(head, with_data(first + ", " + first)).names("[few_shot]").value("first.csv").offers("differ");
  refusal(head, with_data("nowhere.csv")).names("[few_shot]").value("nowhere.csv").offers("--data=FOLDER");
  refusal(head, with_data(first, "label_column = \"kind\"\n")).names("[few_shot]").names("first.csv").value("'kind'");
  const std::string misnamed = "kind = \"trained\"\nseeds = [1, 2]\nmetric = \"few_shot/first\"\n";
  refusal(misnamed, two + sets).names("claim.toml:5").value("few_shot/first").offers("few_shot/first.csv");
  refusal(head, with_data(first, "shots = 10\n")).names("first.csv").value(9).value("few_shot").value(10);
}
