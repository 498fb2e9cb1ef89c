// The registry of attentions, resolution of their specs, and catalogue rows of the layer settings.
#include "nn/attentions/base/attention.h"
#include "nn/attentions/base/slots.h"
#include "nn/attentions/base/span.h"
#include "nn/base/spec_family.h"

namespace orrery::nn {

Registry<AttentionEntry>& attentions() {
  static Registry<AttentionEntry> all("attention");
  return all;
}
std::unique_ptr<Sublayer> make_attention(const Spec& spec, const AttentionLayerOptions& options) {
  return make_from(attentions(), spec, options);
}

const bool family_of_attentions = add_spec_family<attentions>("attention", resolved_attention);

Spec resolved_attention(const Spec& spec) {
  Spec all = resolved(attentions(), spec);
  bool span = false;
  for (Spec::Item& item : all.items) {
    if (item.key == "span") item.value = resolved_span(item.value), span = item.value.name != "none";
    if (item.key == "persistent") item.value = resolved_slots(item.value);
  }
  for (Spec::Item& item : all.items)  // its default depends on the span: record its value
    if (span && item.key == "attend_to_self" && item.value.name == "default") item.value = parse_spec("no");
  const bool relu = all.name == "rela" || all.name == "relu_former";
  std::erase_if(all.items, [&](const Spec::Item& item) {  // older runs lack them: their hashes must not change
    return print(item.value) == (item.key == "parameters_per" ? "head" : relu && item.key == "function" ? "relu" : "-");
  });
  return all;
}

const std::vector<Info>& attention_settings() {
  static const std::vector<Info> all = [] {
    std::vector<Info> list = span_settings();
    list.insert(list.end(), {{.name = "gate",
                              .formula = "o_i F(x_i W_g)",
                              .source = "Wortsman et al. 2023, arXiv:2309.08586; Hua et al. 2022, arXiv:2202.10447",
                              .parameters = "W_g N(0, 0.02^2), bias 0",
                              .saves = "x, x W_g, o"},
                             {.name = "qk_norm",
                              .formula = "q, k each normalized over the head size",
                              .source = "Dehghani et al. 2023, arXiv:2302.05442",
                              .parameters = "two normalizations without biases: weight 1 for layer and rms",
                              .saves = "as the normalization, for q and k"},
                             slots_setting()});
    return list;
  }();
  return all;
}

}  // namespace orrery::nn
