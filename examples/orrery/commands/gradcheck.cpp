// orrery gradcheck: compares explicit derivatives with independent checks.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <set>

#include "engine/settings/registry.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/commands/gradient_diagnosis.h"
#include "examples/orrery/commands/pointwise_check.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/help_text.h"
#include "examples/orrery/terminal/progress.h"
#include "examples/orrery/terminal/table.h"
#include "models/catalogue/catalogue.h"
#include "models/checks/property_check.h"
#include "nn/base/gradient_case.h"

namespace orrery::program {
namespace {

struct GradcheckSettings {
  bool all = false;
  int64_t seed = 0;
  std::string device = "cpu";
  template <class V>
  void visit(V& v) {
    v("all", all, "check every registered name");
    v("seed", seed, "seed of the random inputs", between(-9e15, 9e15));
    v("device", device, "device of the hand-written derivatives, cpu or cuda; the references run on the CPU",
      one_of({"cpu", "cuda"}));
  }
};

struct Name {
  std::string family, name;
  bool operator<(const Name& other) const { return std::tie(family, name) < std::tie(other.family, other.name); }
};
struct Totals {
  int64_t cases = 0, comparisons = 0;
  std::vector<std::string> failed;
};

// These families are not differentiated, or only within other families' cases.
bool has_derivative(const models::CatalogueFamily& family) {
  static const std::set<std::string> without = {"optimizer", "schedule", "attention_setting", "mask", "problem"};
  return family.formulas && !without.contains(family.name);
}

std::vector<Name> every_name() {
  std::vector<Name> all;
  for (const models::CatalogueFamily& family : models::catalogue())
    if (has_derivative(family))
      for (const models::CatalogueEntry& entry : family.entries) all.push_back({family.name, entry.name});
  return all;
}

// Accepts "silu", "activation/silu" and "activation": several families may share a name.
std::vector<Name> find_names(const std::string& word) {
  std::vector<Name> found;
  std::vector<std::string> known, without;
  for (const models::CatalogueFamily& family : models::catalogue())
    for (const models::CatalogueEntry& entry : family.entries) {
      std::vector<std::string> names = entry.aliases;
      names.insert(names.end(), {entry.name, family.name + "/" + entry.name, family.name});
      known.insert(known.end(), names.begin(), names.end());
      if (std::find(names.begin(), names.end(), word) == names.end()) continue;
      if (has_derivative(family)) found.push_back({family.name, entry.name});
      without.push_back(family.name);
    }
  if (!found.empty()) return found;
  check_usage(without.empty(), "gradcheck: '", word, "' belongs to the family ", without.empty() ? "" : without[0],
              ", which has no derivative to check; give a name of another family (orrery list)");
  const std::string meant = nearest(word, known);
  fail_usage("gradcheck: unknown name '", word, "'; ", meant.empty() ? "" : "did you mean '" + meant + "'? ",
             "orrery list prints all names");
}

std::string full(double x) { return scientific(x, 9); }

void report(const std::string& title, bool passed, const Table& table, const std::vector<std::string>& diagnosis,
            const std::string& name, Totals& totals) {
  std::cout << broken_line(title + ": " + (passed ? "passed" : "FAILED"), STDOUT_FILENO) << table.print() << std::flush;
  for (const std::string& line : diagnosis) std::cout << broken_line("  " + line, STDOUT_FILENO);
  totals.cases += 1;
  if (!passed && (totals.failed.empty() || totals.failed.back() != name)) totals.failed.push_back(name);
}

void check_activation(const Name& n, Totals& totals) {
  Table table(
      {"input", "points", "against dual numbers", "against difference", "worst at", "explicit", "finite difference"},
      "lrrrrrr");
  bool passed = true;
  std::vector<CheckedInput> inputs;
  for (const PointwiseRow& row : check_pointwise(n.name)) {
    passed = passed && row.elements > 0 && row.dual_error <= dual_tolerance &&
             row.finite_difference_error <= pointwise_difference_tolerance;
    inputs.push_back({row.input, row.dual_error, row.finite_difference_error, row.factor});
    totals.comparisons += 2 * row.elements;
    table.add({row.input, std::to_string(row.elements), scientific(row.dual_error),
               scientific(row.finite_difference_error), "x = " + fixed(row.worst_x, 4), full(row.worst_explicit),
               full(row.worst_finite_difference)});
  }
  const std::vector<std::string> errors = models::property_errors(nn::Activation(n.name));
  report(n.family + " " + n.name + ", point by point", passed && errors.empty(), table,
         diagnose(inputs, {"dual numbers", dual_tolerance, pointwise_difference_tolerance}), n.name, totals);
  for (const std::string& error : errors) std::cout << "  wrong property: " << error << "\n";
}

std::string indices_text(const Shape& shape, int64_t element) {  // (2, 5): indices of an element
  std::vector<std::string> indices;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    indices.insert(indices.begin(), std::to_string(element % shape[axis]));
    element /= shape[axis];
  }
  return "(" + join(indices) + ")";
}

void check_registered(const nn::RegisteredCase& registered, uint64_t seed, Device device, Totals& totals) {
  const GradientCase test = nn::make_case(registered, seed);
  const GradientReport result = check_gradients(test, device);
  const bool has_reference = static_cast<bool>(test.reference);
  Table table(
      {"input", "elements", "against reference", "against difference", "worst at", "explicit", "finite difference"},
      "lrrrrrr");
  if (has_reference) table.add({"(result)", "", scientific(result.value_difference)});
  std::vector<CheckedInput> inputs;
  for (const GradientRow& row : result.rows) {
    inputs.push_back({row.input, has_reference ? row.reference_error : NAN, row.finite_difference_error, row.factor});
    const auto input =
        std::find_if(test.inputs.begin(), test.inputs.end(), [&](const auto& i) { return i.name == row.input; });
    table.add({row.input, std::to_string(row.elements), has_reference ? scientific(row.reference_error) : "-",
               scientific(row.finite_difference_error), indices_text(input->value.shape(), row.worst_element),
               full(row.worst_explicit), full(row.worst_finite_difference)});
  }
  totals.comparisons += result.comparisons;
  report(registered.family + " " + (registered.title.empty() ? registered.name : registered.title), result.passed,
         table,
         diagnose(inputs, {"reference", reference_tolerance, finite_difference_tolerance}, result.value_difference),
         registered.name, totals);
}

void check_name(const Name& n, uint64_t seed, Device device, Totals& totals) {
  const auto failed = [&](const std::string& reason) {
    std::cout << n.family << " " << n.name << ": FAILED, " << reason << "\n";
    totals.failed.push_back(n.name);
  };
  try {
    bool found = n.family == "activation";
    if (found) check_activation(n, totals);
    for (const nn::RegisteredCase& registered : nn::gradient_cases()) {
      if (registered.family != n.family || registered.name != n.name) continue;
      found = true;
      check_registered(registered, seed, device, totals);
    }
    if (!found)
      failed(text("no gradient case is registered; add to its file REGISTER_GRADIENT_CASE(\"", n.family, "\", \"",
                  n.name, "\", ...)"));
  } catch (const Error& error) {
    failed(error.what());
  }
}

}  // namespace

bool passes_gradcheck(const std::string& family, const std::string& name) {
  Totals totals;
  for (const models::CatalogueFamily& each : models::catalogue())
    if (each.name == family && has_derivative(each)) check_name({family, name}, 0, Device::cpu, totals);
  return totals.failed.empty();
}

CommandHelp gradcheck_help(const Arguments&) {
  GradcheckSettings settings;
  std::vector<std::string> names;
  for (const Name& n : every_name()) names.push_back(n.name);
  return {
      "A NAME is an activation, layer, normalization, attention, loss, ... (orrery list prints them), family/name, "
      "or a whole family.  Each input and parameter has a row: the error of the hand-written derivative against "
      "autograd through a reference (activations: against dual numbers) and against a finite difference, and the "
      "element where the latter error is largest.  All in f64.  A failed check names the bound, the factor above it "
      "and the likely cause.  The exit code is 0 if all agree, else 1.",
      describe(settings_of(settings)), "", "orrery gradcheck silu rms softmax", names};
}

int gradcheck(const Arguments& arguments) {
  GradcheckSettings settings;
  const std::vector<std::string> words = read_arguments("gradcheck", arguments, settings_of(settings));
  check_usage(settings.all || !words.empty(),
              "gradcheck: no name is given; give names, as in orrery gradcheck silu rms, or --all");
  check_usage(!settings.all || words.empty(), "gradcheck: --all checks every name; leave '",
              words.empty() ? "" : words[0], "' out");
  std::set<Name> names;
  for (const std::string& word : words)
    for (const Name& n : find_names(word)) names.insert(n);
  if (settings.all)
    for (const Name& n : every_name()) names.insert(n);
  const Device device = parse_device(settings.device);
  check_available(device);
  Totals totals;
  Progress progress("checking", Progress::Results::shown_at_once);
  double done = 0;
  for (const Name& n : names) {
    check_name(n, static_cast<uint64_t>(settings.seed), device, totals);
    progress.fraction("checked", ++done / static_cast<double>(names.size()));
  }
  if (!totals.failed.empty()) std::cout << "FAILED: " << join(totals.failed) << "\n";
  std::cout << pluralize(static_cast<int64_t>(names.size()), "name") << ", " << pluralize(totals.cases, "case") << ", "
            << pluralize(totals.comparisons, "comparison") << ", " << totals.failed.size() << " failed" << std::endl;
  return totals.failed.empty() ? 0 : 1;
}

}  // namespace orrery::program
