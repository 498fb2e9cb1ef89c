// The cases of a golden file of variants, with their tensors. tests/golden/variants.py makes them.
#pragma once

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "engine/tensor/safetensors.h"

namespace orrery::testing {

struct GoldenCase {
  std::string name, spec, position;
  std::vector<std::string> inputs, parameters;
  std::map<std::string, std::string> options;
  std::map<std::string, Tensor> tensors;  // "x", "dx", "y", ...: without the case's name

  bool has(const std::string& tensor) const { return tensors.contains(tensor); }
  const Tensor& tensor(const std::string& tensor) const {
    const auto found = tensors.find(tensor);
    check(found != tensors.end(), "golden: case '", name, "' has no tensor '", tensor, "'");
    return found->second;
  }
  Tensor leaf(const std::string& name_of) const { return tensor(name_of).clone().set_requires_grad(); }
  std::string option(const std::string& key) const {
    const auto found = options.find(key);
    return found == options.end() ? "" : found->second;
  }
  bool yes(const std::string& key) const { return option(key) == "yes"; }
  int64_t number(const std::string& key, int64_t otherwise) const {
    return option(key).empty() ? otherwise : std::stoll(option(key));
  }
  double real(const std::string& key, double otherwise) const {
    return option(key).empty() ? otherwise : std::stod(option(key));
  }
};

inline std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

inline std::vector<GoldenCase> golden_cases(const std::string& file) {
  const SafetensorsFile all = read_safetensors(std::string(ORRERY_SOURCE_DIR) + "/tests/golden/" + file);
  std::map<std::string, GoldenCase> cases;
  const auto parts = [](const std::string& key) {
    const size_t dot = key.find('.');
    return std::pair(key.substr(0, dot), dot == std::string::npos ? "" : key.substr(dot + 1));
  };
  for (const auto& [key, value] : all.metadata)
    if (const auto [name, what] = parts(key); what == "spec") cases[name].name = name, cases[name].spec = value;
  for (const auto& [key, value] : all.metadata) {
    const auto [name, what] = parts(key);
    if (!cases.contains(name)) continue;
    GoldenCase& one = cases[name];
    one.options[what] = value;
    if (what == "position") one.position = value;
    if (what == "inputs") one.inputs = words_of(value);
    if (what == "parameters") one.parameters = words_of(value);
  }
  for (const NamedTensor& t : all.tensors) {
    const auto [name, what] = parts(t.name);
    if (cases.contains(name)) cases[name].tensors[what] = t.tensor;
  }
  std::vector<GoldenCase> list;
  for (auto& [name, one] : cases) list.push_back(std::move(one));
  return list;
}

}  // namespace orrery::testing
