// The tree of the model's modules: the spec of each, its parameters, heads, units, slots and span.
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <typeinfo>

#include "engine/ops/ops.h"
#include "engine/types/format.h"
#include "models/inspection/base/analysis.h"
#include "nn/attentions/base/slots.h"
#include "nn/attentions/base/span.h"
#include "nn/base/spec_family.h"

namespace orrery::models {
namespace {

// Returns the name of a module's class without its namespace, as settings write names: "resnet_block" for
// orrery::models::Resnet::Block.
std::string class_name(const nn::Module& module) {
  char* const full = abi::__cxa_demangle(typeid(module).name(), nullptr, nullptr, nullptr);
  const std::string name = full ? full : typeid(module).name();
  std::free(full);
  std::string words;
  for (size_t i = std::min(name.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), name.size()); i < name.size(); ++i) {
    const bool is_capital = name[i] >= 'A' && name[i] <= 'Z';
    if (name[i] == '<') break;
    if (is_capital && !words.empty()) words += '_';
    if (name[i] != ':') words += is_capital ? static_cast<char>(name[i] - 'A' + 'a') : name[i];
  }
  return words;
}

// Returns the spec without the settings that have their default values.
Spec shortened(const nn::SpecFamily& family, const Spec& spec) {
  const Spec defaults = family.resolved({spec.name, {}});
  Spec rest = family.resolved(spec);
  std::erase_if(rest.items, [&](const Spec::Item& item) {
    return std::find(defaults.items.begin(), defaults.items.end(), item) != defaults.items.end();
  });
  return rest;
}

class Tree final : public nn::Visitor {
 public:
  explicit Tree(nn::Module& model) {
    module("", model);
    model.visit(*this);
  }
  ComponentsView view;
  std::map<std::string, const nn::Span*> spans;  // by the path of their attention

  // Returns null if no module has this path.
  ComponentsView::Component* at(const std::string& path) {
    const auto found = index_.find(path);
    return found == index_.end() ? nullptr : &view.components[found->second];
  }

 protected:
  void module(const std::string& path, nn::Module& module) override {
    index_.emplace(path, view.components.size());
    view.components.push_back({.path = path, .kind = class_name(module)});
    if (const auto& [family, spec] = module.origin; !family.empty()) {
      view.components.back().kind = family;
      view.components.back().spec = print(shortened(nn::spec_families().at(family), parse_spec(spec)));
    }
    const std::string owner = path.substr(0, path.rfind('.'));
    ComponentsView::Component* const attention = path == owner ? nullptr : at(owner);
    if (!attention) return;
    if (const auto* const slots = dynamic_cast<const nn::Slots*>(&module)) attention->slots = slots->count();
    if (const auto* const span = dynamic_cast<const nn::Span*>(&module)) spans[owner] = span;
  }
  void parameter(const std::string& path, nn::Parameter& parameter) override {
    ComponentsView::Component* owner = nullptr;
    for (ComponentsView::Component& each : view.components) {  // the deepest is the last
      if (!each.path.empty() && !path.starts_with(each.path + ".")) continue;
      each.parameters += parameter.value.numel();
      owner = &each;
    }
    const std::string name = owner->path.empty() ? path : path.substr(owner->path.size() + 1);
    owner->tensors.push_back(text(name, " ", parameter.value.shape()));
  }

 private:
  std::map<std::string, size_t> index_;
};

void analyze(std::vector<View>& views, const InspectedExample& example, const AnalysisSettings&) {
  Tree tree(example.model());
  for (const auto& [path, span] : tree.spans)
    if (!span->learned()) tree.at(path)->span = {static_cast<double>(span->max_span())};
  capture_values(example, {"*.head_output", "*.hidden", "*.span"},
                 [&](const std::string& path, const std::string& name, const Tensor& value) {
                   if (name == "span") {  // (H) or (1, H, T)
                     const size_t end = path.rfind('.');
                     const nn::Span* const span = tree.spans.at(path.substr(0, end));
                     const Tensor tokens = span->attended_tokens(to_cpu(value));
                     const int64_t heads = tokens.shape().rank() == 1 ? tokens.numel() : tokens.size(1);
                     tree.at(path.substr(0, end))->span =
                         mean(tokens.reshape(Shape{heads, tokens.numel() / heads}), {1}).to_vector();
                     return;
                   }
                   ComponentsView::Component* const component = tree.at(path);
                   if (!component) return;
                   const Shape& shape = value.shape();
                   if (name == "head_output")
                     component->heads = shape[-2];
                   else if (shape.rank() == 4)
                     component->heads = shape[1], component->slots = shape[-1];
                   else
                     component->units = shape[-1];
                 });
  const int64_t parameters = tree.view.components[0].parameters, count = std::ssize(tree.view.components) - 1;
  views.push_back({"Components", "", "Components of the model",
                   text(with_commas(parameters), " parameters in ", pluralize(count, "module"), "."),
                   std::move(tree.view)});
}

REGISTER_ANALYSIS(components, {.name = "components",
                               .description = "tree of the model's modules: specs, formulas with their files, "
                                              "parameters, heads, units, slots and spans",
                               .analyze = analyze});

}  // namespace
}  // namespace orrery::models
