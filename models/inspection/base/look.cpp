#include "models/inspection/base/look.h"

#include <algorithm>
#include <numeric>

#include "engine/ops/ops.h"
#include "engine/types/wording.h"
#include "models/former_names.h"

namespace orrery::models {

Registry<Look>& looks() {
  static Registry<Look> all("analysis");
  return all;
}

bool add_look(Look look) {
  const std::vector<std::string> aliases = former_names(look.name);
  looks().add(std::move(look), aliases);
  return true;
}

namespace {

std::vector<std::string> looks_called(const std::string& names) {
  std::vector<std::string> wanted = names == "all" ? looks().names() : items_of(names);
  for (std::string& name : wanted) name = looks().at(name).name;
  return wanted;
}

}  // namespace

void check_looks(const std::string& names) { looks_called(names); }

std::vector<View> look_at(const Subject& subject, const std::string& names, const LookSettings& settings) {
  const std::vector<std::string> wanted = looks_called(names);
  std::vector<View> views;
  for (const std::string& name : looks().names())
    if (std::find(wanted.begin(), wanted.end(), name) != wanted.end()) looks().at(name).look(views, subject, settings);
  return views;
}

std::map<std::string, double> figures_of(std::span<const View> views) {
  std::map<std::string, double> all;
  for (const View& view : views)
    for (const auto& [name, value] : view.figures)
      if (!std::isnan(value)) all[name] = value;
  return all;
}

Tensor as_seen(const Tensor& value) {
  const Tensor here = value.detach().to(Device::cpu);
  return here.dtype() == Dtype::f64 ? here : here.to(Dtype::f32);
}

Tensor see_values(
    const Subject& subject, const std::vector<std::string>& patterns,
    const std::function<void(const std::string& path, const std::string& name, const Tensor& value)>& watch) {
  const Hooks hooks(patterns, [&](const std::string& full, const Tensor& value) {
    const size_t dot = full.rfind('.');
    const bool of_model = dot == std::string::npos;
    watch(of_model ? "" : full.substr(0, dot), of_model ? full : full.substr(dot + 1), value);
  });
  return subject.run();
}

std::vector<std::vector<Seen>> see(const Subject& subject, const std::vector<std::string>& names) {
  std::vector<std::vector<Seen>> seen(names.size());
  std::vector<std::string> patterns;
  for (const std::string& name : names) patterns.push_back("*." + name), patterns.push_back(name);
  see_values(subject, patterns, [&](const std::string& path, const std::string& name, const Tensor& value) {
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i] == name) seen[i].push_back({path, as_seen(value)});
  });
  return seen;
}

std::vector<Seen> see(const Subject& subject, const std::string& name) {
  return std::move(see(subject, std::vector<std::string>{name})[0]);
}

std::vector<size_t> chosen_layers(size_t layers, int64_t layer, const std::string& of_what) {
  check(layer < static_cast<int64_t>(layers), "inspect: --layer=", layer, " is out of range; ", of_what,
        " have numbers from 0 to ", layers - 1);
  if (layer >= 0) return {static_cast<size_t>(layer)};
  std::vector<size_t> each(layers);
  std::iota(each.begin(), each.end(), size_t{0});
  return each;
}

void check_head(int64_t head, int64_t heads, const std::string& path) {
  check(head < heads, "inspect: --head=", head, " is out of range; ", path, " has heads from 0 to ", heads - 1);
}

}  // namespace orrery::models
