// How a family lists what belongs to it.  Every member is a class with
//   static inline const Info info{.name = ..., .formula = ..., .source = ..., .parameters = ..., .keeps = ...};
//   struct Settings { ... visit ... };            if its spec takes settings
//   Type(const Spec& spec, Arguments...)
// and one line, REGISTER_<FAMILY>(Type).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/config.h"
#include "engine/registry.h"

namespace orrery::nn {

struct Info {
  std::string_view name, formula, source;
  std::string_view parameters = {};  // learned, each with its initial value: "weight 1, bias 0"
  std::string_view keeps = {};       // between forward and backward: "x, mean and 1/deviation of each row"
};

// The settings of a spec: `memory(softmax, norm=layer)`.
template <Visited Settings>
Settings settings_from(const Spec& spec) {
  Settings settings;
  read_settings(spec, settings);
  return settings;
}

template <class Product, class... Arguments>
struct Entry {
  std::string name, formula, source, parameters, keeps;
  std::vector<std::pair<std::string, std::string>> settings;  // of the spec, with their defaults
  std::unique_ptr<Product> (*make)(const Spec& spec, Arguments... arguments);
};

template <class Type, class Product, class... Arguments>
bool register_type(Registry<Entry<Product, Arguments...>>& family) {
  constexpr auto copy = [](std::string_view text) { return std::string(text); };
  const Info& info = Type::info;
  Entry<Product, Arguments...> entry{
      copy(info.name), copy(info.formula), copy(info.source), copy(info.parameters), copy(info.keeps), {}, nullptr};
  if constexpr (requires { typename Type::Settings; }) entry.settings = list_settings(typename Type::Settings{});
  entry.make = [](const Spec& spec, Arguments... arguments) -> std::unique_ptr<Product> {
    return std::make_unique<Type>(spec, arguments...);
  };
  family.add(std::move(entry));
  return true;
}

}  // namespace orrery::nn
