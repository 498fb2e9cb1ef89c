// orrery gradcheck and orrery list.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "models/catalogue/catalogue.h"
#include "nn/formulas/activation.h"
#include "tests/examples/program.h"
#include "tests/support/message.h"

using namespace orrery;
using orrery::testing::finds;
using orrery::testing::matches_in;
using orrery::testing::Message;

namespace {

// Returns the numbers in the last line: names, cases, comparisons and failures.
std::vector<size_t> totals(const Outcome& outcome) {
  std::string last = last_line(outcome.out);
  std::erase(last, ',');
  std::vector<size_t> all;
  for (const auto& match : matches_in(last, "\\d+")) all.push_back(std::stoul(match[0]));
  REQUIRE(all.size() == 4);
  return all;
}

}  // namespace

TEST_CASE("gradcheck: a formula is checked by its name, an alias or its family") {
  for (const char* word : {"silu", "swish", "activation/silu"}) {
    const Outcome outcome = run_orrery({"gradcheck", word});
    CHECK(outcome.code == 0);
    Message message(outcome.out);
    message.names("activation silu").value("passed").names("dual numbers");
    message.names("activation silu").value("passed");  // as a gate
    CHECK(totals(outcome)[0] == 1);
    CHECK(totals(outcome)[1] == 2);
  }
  const Outcome learned = run_orrery({"gradcheck", "prelu"});
  CHECK(learned.code == 0);
  Message(learned.out).names("activation prelu").value("passed").names("dual numbers");

  const Outcome layers = run_orrery({"gradcheck", "normalization", "softmax"});
  CHECK(layers.code == 0);
  for (const char* expected : {"normalization rms: passed", "normalization layer: passed",
                               "attention softmax, causal, T 17, D 8: passed", "against reference", "weight"})
    CHECK(contains(layers.out, expected));
}

TEST_CASE("gradcheck: every registered formula passes") {
  const Outcome outcome = run_orrery({"gradcheck", "--all"});
  INFO(outcome.out);
  CHECK(outcome.code == 0);
  const std::vector<size_t> numbers = totals(outcome);
  size_t names = 0;
  for (const models::CatalogueFamily& family : models::catalogue())
    if (family.formulas &&
        !std::set<std::string>{"optimizer", "schedule", "attention_setting", "mask", "problem"}.contains(family.name))
      names += family.entries.size();
  CHECK(numbers[0] == names);
  CHECK(numbers[1] >= names);
  CHECK(numbers[3] == 0);
}

TEST_CASE("gradcheck: wrong derivatives and names without a gradient case fail") {
  const auto gradcheck = [](const std::string& words) { return run_shell("'" WRONG_DERIVATIVE_PROGRAM "' " + words); };
  const Outcome gelu = gradcheck("wrong_gelu");
  CHECK(gelu.code == 1);
  Message(gelu.out).names("activation wrong_gelu").value("FAILED").names("dual numbers");
  CHECK(totals(gelu)[3] == 1);

  const Outcome square = gradcheck("wrong_square");
  CHECK(square.code == 1);
  Message(square.out)
      .names("loss wrong_square")
      .value("FAILED")
      .names("x: error against reference")
      .value("times the bound 1.0e-12")
      .names("x: error against finite difference")
      .value("times the bound 1.0e-07")
      .offers("likely cause: x: the derivative is 0.5 times the finite difference everywhere: a wrong factor");

  const Outcome term = gradcheck("missing_term");
  CHECK(term.code == 1);
  Message(term.out)
      .names("loss missing_term")
      .value("FAILED")
      .names("weight: error against reference")
      .names("weight: error against finite difference")
      .offers("likely cause: weight: a wrong or missing term")
      .offers("likely cause: only weight fails");
  CHECK(!contains(term.out, "x: error"));
  Message(gelu.out).offers("likely cause: x: a wrong or missing term");

  const Outcome kink = gradcheck("kink_on_grid");
  CHECK(kink.code == 1);
  Message(kink.out)
      .names("activation kink_on_grid")
      .value("FAILED")
      .value("x = 0.3125")
      .names("x: error against finite difference 5.0e-01 is 5.0e+08 times the bound 1.0e-09")
      .offers("likely cause: x: a kink at the worst element")
      .value("dual numbers");
  CHECK(!contains(kink.out, "error against dual numbers"));

  const Outcome without = gradcheck("without_case");
  CHECK(without.code == 1);
  Message(without.out).names("loss without_case").value("FAILED").offers("REGISTER_GRADIENT_CASE");

  struct FalseFact {
    std::string name;
    std::vector<std::string> terms;
    std::string digits;  // the first digits of a number
  };
  for (const auto& [name, terms, digits] : std::vector<FalseFact>{
           {"false_zero", {"zero_below_zero", "F(x) = 0 for x <= 0", "F(-1.25) = -"}, "F(-1.25) = -0.278"},
           {"false_homogeneous", {"homogeneous", "-", "F("}, ""},
           {"false_limits", {"limits", "-1", "F(-10000) = "}, ""},
           {"false_kink", {"kinks", "1", "F'''", "leave it out"}, ""},
           {"hidden_kink", {"kinks", "F'", "0", "1"}, "0.2999999999999"},
           {"false_from_output", {"derivative_from_output", "0", "F'(-12) = -"}, ""},
           {"false_at_kink", {"derivative_from_output", "1", "F'(0.3) = 2"}, ""},
           {"false_default", {"constants", "slope", "2", "at most 1"}, ""}}) {
    const Outcome outcome = gradcheck(name);
    CHECK(outcome.code == 1);
    Message message(outcome.out);
    message.names("activation " + name).value("FAILED").names("dual numbers");
    for (const std::string& term : terms) message.value(term);
    CHECK_MESSAGE(contains(outcome.out, digits), outcome.out);
  }
  const Outcome silu = gradcheck("silu");
  CHECK(silu.code == 0);
  CHECK(!contains(silu.out, "likely cause"));
  const Outcome all = gradcheck("--all");
  CHECK(all.code == 1);
  CHECK(
      contains(all.out,
               "FAILED: false_at_kink, false_default, false_from_output, false_homogeneous, false_kink, false_limits, "
               "false_zero, hidden_kink, kink_on_grid, wrong_gelu, missing_term, without_case, wrong_square\n"));
  CHECK(totals(all)[3] == 13);
}

TEST_CASE("list: every registered name has a formula and a source") {
  const Outcome all = run_orrery({"list"});
  CHECK(all.code == 0);
  for (const models::CatalogueFamily& family : models::catalogue()) {
    CHECK(contains(all.out, family.name + ":"));
    CHECK(!family.entries.empty());
    for (const models::CatalogueEntry& entry : family.entries) {
      INFO(family.name, " ", entry.name);
      CHECK(contains(all.out, "\n  " + entry.name));
      CHECK(!entry.formula.empty());
      CHECK(contains(all.out, entry.formula));
      CHECK(entry.properties.size() == family.entries[0].properties.size());
      for (const auto& one : entry.properties) {  // "none" and "nothing" are values, too
        const std::string &property = one.first, &value = one.second;
        INFO(property);
        const std::set<std::string> of_some = {"schedule saved for backward", "problem parameters",
                                               "problem saved for backward", "mask parameters",
                                               "mask saved for backward",     "model_preset counted for"};
        CHECK((!value.empty() || of_some.contains(family.name + " " + property)));
        if (!value.empty()) CHECK(contains(all.out, property + ": " + value));
      }
      const auto has = [&](const std::string& wanted) {
        return std::any_of(entry.properties.begin(), entry.properties.end(),
                           [&](const auto& f) { return f.first == wanted; });
      };
      if (!family.formulas) continue;
      CHECK(!entry.source.empty());
      CHECK(contains(all.out, entry.source));
      CHECK((has("saved for backward") || has("state")));         // "state" of an optimizer
      CHECK((has("parameters") || family.name == "activation"));  // activations have only constants
    }
  }
  for (const std::string& name : nn::activation_names()) CHECK(contains(all.out, "  " + name));

  const Outcome silu = run_orrery({"list", "swish"});
  CHECK(silu.code == 0);
  for (const char* expected : {"silu (swish)", "x * sigmoid(beta * x)", "beta=1", "kinks: none", "F(0): 0",
                               "F'(0): 0.5", "minimum: -0.2785; limits: 0, inf"})
    CHECK(contains(silu.out, expected));
  CHECK(contains(silu.out, "saved for backward: x"));
  const std::string saved = "parameters: weight 1, bias 0; saved for backward: x, mean and 1/std";
  CHECK(contains(run_orrery({"list", "layer"}).out, saved));
  const Outcome family = run_orrery({"list", "schedule"});
  CHECK(run_orrery({"list", "schedules"}).out == family.out);
  const Outcome attentions = run_orrery({"list", "attentions"});  // including what the layer's settings add
  for (const char* expected :
       {"if learned, per head: temperature 1, entropy_threshold 0.5", "  gate\n", "W_g N(0, 0.02^2), bias 0",
        "  qk_norm\n", "weight 1 for layer and rms", "  adaptive_span\n", "z' 0, one per head", "  dynamic_span\n",
        "v N(0, 0.02^2), b -4, one each per head", "  slots\n", "K N(0, 1) / sqrt(D), V N(0, 1) / sqrt(N)"})
    CHECK_MESSAGE(contains(attentions.out, expected), expected);
  CHECK(!contains(run_orrery({"list", "attention_setting"}).out, "softmax_j"));
  CHECK(contains(family.out, "cosine"));
  CHECK(!contains(family.out, "silu"));
}

TEST_CASE("catalogue: each trained parameter has its initial value, or a component that states it") {
  const std::set<std::string> with_parameters = {"attention", "attention_setting", "feed_forward",
                                                 "layer",     "normalization",     "position"};
  for (const models::CatalogueFamily& family : models::catalogue()) {
    if (!with_parameters.contains(family.name)) continue;
    for (const models::CatalogueEntry& entry : family.entries)
      for (const auto& property : entry.properties)
        for (const auto& part : matches_in(property.first == "parameters" ? property.second : "", "[^;]+")) {
          INFO(family.name, " ", entry.name, ": ", part[0]);
          CHECK(finds(part[0], "[0-9]|as [a-z]|those of F|none"));
        }
  }
}

TEST_CASE("catalogue: the minimum of an activation is found, at a limit or between the limits") {
  const auto property = [](const std::string& name, const std::string& key) {
    for (const models::CatalogueFamily& family : models::catalogue())
      for (const models::CatalogueEntry& entry : family.entries)
        for (const auto& [property, value] : entry.properties)
          if (entry.name == name && property == key) return value;
    return std::string("none found");
  };
  CHECK(property("gelu", "minimum") == "-0.17");
  CHECK(property("sigmoid", "minimum") == "0");
  CHECK(property("tanh", "minimum") == "-1");
  CHECK(property("identity", "minimum") == "-inf");
  CHECK(property("square", "minimum") == "0");
  CHECK(property("sine", "minimum") == "-1");
  CHECK(property("sine", "limits") == "none, none");
}

TEST_CASE("catalogue: the pages of nn and models contain the current catalogue") {
  const auto part_in = [](const std::string& path) {
    const std::string page = read_file(ORRERY_SOURCE_DIR "/" + path), begin = "<!-- catalogue begin -->\n";
    const size_t from = page.find(begin), to = page.find("<!-- catalogue end -->");
    REQUIRE_MESSAGE(from != std::string::npos, path);
    REQUIRE_MESSAGE(to != std::string::npos, path);
    return page.substr(from + begin.size(), to - from - begin.size());
  };
  const std::string whole = models::catalogue_markdown(), of_models = part_in("models/CATALOGUE.md");
  CHECK_MESSAGE(part_in("nn/CATALOGUE.md") + "\n" + of_models == whole,
                "write the two pages anew: python3 tests/catalogue.py build/orrery");
  CHECK(of_models.starts_with("## Tokenizers\n"));  // the families before it are those of nn
  CHECK(run_orrery({"list", "--markdown"}).out == whole);
}
