// TransformerLens's names: each returns the value of orrery's name, with TransformerLens's meaning.
#include "models/hook_names.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <set>

#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "models/model.h"
#include "models/training/settings.h"
#include "nn/formulas/activation.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;
using orrery::testing::largest_difference;
using orrery::testing::Message;

namespace {

using Words = std::vector<std::string>;

struct Observed {
  std::unique_ptr<nn::Module> model;
  std::map<std::string, Tensor> shown;
  explicit Observed(const Assignments& more, const Words& patterns) {
    Assignments all = {{"model", "gpt"}, {"vocabulary", "9"}, {"context", "8"}, {"layers", "2"},
                       {"heads", "2"},   {"width", "16"},     {"bias", "yes"},  {"initialization", "0.3"}};
    all.insert(all.end(), more.begin(), more.end());
    model = make_model(make_settings(all));
    nn::initialize(*model, 3);
    nn::convert(*model, Dtype::f64);
    const Hooks hooks(hook_patterns(patterns), [&](const std::string& name, const Tensor& x) { shown[name] = x; });
    nn::ForwardPass pass;
    (*model)(Tensor::from({2, 8}, std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1}), pass);
    check_all_matched(hooks, patterns);
  }
  Tensor parameter(const std::string& path) {
    for (const nn::NamedParameter& each : nn::parameters_of(*model))
      if (each.path == path) return each.parameter->value.detach();
    FAIL("there is no " << path);
    return {};
  }
};
std::string in_layer(const std::string& source, bool in_block) { return in_block ? "blocks.1." + source : source; }

}  // namespace

TEST_CASE("TransformerLens's names: each alias shows the value of our name") {
  Words target;
  for (const HookAlias& alias : hook_aliases()) target.push_back(in_layer(alias.target, alias.in_block));
  const Observed by_our_name({}, target);
  for (const HookAlias& alias : hook_aliases()) {
    CAPTURE(alias.source);
    const Observed by_their_name({}, {in_layer(alias.source, alias.in_block)});
    const std::string name = in_layer(alias.target, alias.in_block);
    REQUIRE(by_their_name.shown.size() == 1);
    CHECK(by_their_name.shown.begin()->first == name);
    CHECK(largest_difference(by_their_name.shown.begin()->second, by_our_name.shown.at(name)) == 0);
  }
}

TEST_CASE("TransformerLens's names: values equal those of TransformerLens") {
  for (const Assignments& form : {Assignments{}, Assignments{{"feed_forward", "gated(silu)"}}}) {
    Observed observed(form, {"hook_embed", "blocks.1.hook_*", "blocks.1.ln?.hook_normalized", "blocks.1.attn.*",
                             "blocks.1.mlp.hook_*", "ln_final.hook_normalized"});
    const auto at = [&](const std::string& source) { return observed.shown.at(resolve_hook_names(source).at(0)); };
    const auto of = [&](const std::string& source) { return at("blocks.1." + source); };
    const auto same = [](const Tensor& a, const Tensor& b) { CHECK(largest_difference(a, b) <= 1e-12); };

    const Tensor q = of("attn.hook_q"), k = of("attn.hook_k"), v = of("attn.hook_v"), pattern = of("attn.hook_pattern");
    CHECK(q.shape() == Shape{2, 8, 2, 8});  // batch, position, head, head size
    CHECK(pattern.shape() == Shape{2, 2, 8, 8});
    const auto heads = [](const Tensor& x) { return permute(x, {0, 2, 1, 3}); };
    const Tensor scores = matmul(heads(q), heads(k), {.b = true}) / std::sqrt(8.0);
    for (int64_t i = 0; i < 8; ++i) {
      double total = 0;
      for (int64_t j = 0; j <= i; ++j) total += std::exp(scores[1][0][i][j].item());
      for (int64_t j = 0; j < 8; ++j) {
        CHECK(of("attn.hook_attn_scores")[1][0][i][j].item() ==
              doctest::Approx(j <= i ? scores[1][0][i][j].item() : 0).epsilon(1e-12));
        CHECK(pattern[1][0][i][j].item() ==
              doctest::Approx(j <= i ? std::exp(scores[1][0][i][j].item()) / total : 0).epsilon(1e-12));
      }
    }
    same(sum(pattern, {-1}), Tensor::full({2, 2, 8}, 1, Dtype::f64));
    const Tensor z = of("attn.hook_z"), attn_out = of("hook_attn_out");
    same(z, permute(matmul(pattern, heads(v)), {0, 2, 1, 3}));
    same(attn_out, matmul(z.reshape({2, 8, 16}), observed.parameter("blocks.1.attention.output.weight"), {.b = true}) +
                       observed.parameter("blocks.1.attention.output.bias"));
    same(of("hook_resid_mid"), of("hook_resid_pre") + attn_out);
    same(of("hook_resid_post"), of("hook_resid_mid") + of("hook_mlp_out"));

    const auto normalized = [](const Tensor& x) {  // weights are 1 and biases 0 at the start
      const Tensor centred = x - mean(x, {-1}, true);
      return centred / sqrt(mean(centred * centred, {-1}, true) + 1e-5);
    };
    same(of("ln1.hook_normalized"), normalized(of("hook_resid_pre")));
    same(of("ln2.hook_normalized"), normalized(of("hook_resid_mid")));
    same(at("ln_final.hook_normalized"), normalized(of("hook_resid_post")));

    const Tensor pre = of("mlp.hook_pre"), post = of("mlp.hook_post"), in = of("ln2.hook_normalized"),
                 weight = observed.parameter("blocks.1.feed_forward.input.weight");
    const int64_t units = pre.size(-1);
    same(pre, matmul(in, slice(weight, 0, 0, units), {.b = true}));
    if (form.empty())
      same(post, nn::Activation("gelu_tanh")(pre));
    else
      same(post, nn::Activation("silu")(pre) * matmul(in, slice(weight, 0, units, 2 * units), {.b = true}));
    same(of("hook_mlp_out"), matmul(post, observed.parameter("blocks.1.feed_forward.output.weight"), {.b = true}) +
                                 observed.parameter("blocks.1.feed_forward.output.bias"));
    const Tensor embed = at("hook_embed"), table = observed.parameter("token_embedding.weight");
    same(embed[0], index_select(table, Tensor::from({8}, std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8})));
  }
}

TEST_CASE("TransformerLens's names: patterns, and replacing by them") {
  CHECK(resolve_hook_names("blocks.*.attn.hook_pattern") == Words{"blocks.*([0-9]).attention.weights"});
  CHECK(resolve_hook_names("blocks.1?.hook_mlp_out") == Words{"blocks.1?.feed_forward.output"});
  CHECK(resolve_hook_names("*.hook_z") == Words{"blocks.*([0-9]).attention.head_output"});
  CHECK(resolve_hook_names("*hook_z") == Words{"blocks.*([0-9]).attention.head_output"});
  CHECK(resolve_hook_names("*.attn.hook_z") == Words{"blocks.*([0-9]).attention.head_output"});
  CHECK(resolve_hook_names("*hook_normalized") ==
        Words{"blocks.*([0-9]).attention_norm.output", "blocks.*([0-9]).feed_forward_norm.output", "norm.output"});
  CHECK(resolve_hook_names("blocks.0.hook_resid_*") ==
        Words{"blocks.0.input", "blocks.0.attention.residual", "blocks.0.output"});
  CHECK(resolve_hook_names("blocks.3.attn.hook_[qk]") == Words{"blocks.3.attention.query", "blocks.3.attention.key"});
  CHECK(resolve_hook_names("blocks.*.mlp.*").size() == 2);
  for (const char* target : {"blocks.*.attention.weights", "*", "norm.output", "encoder.0.attention.layer.head_output"})
    CHECK(resolve_hook_names(target) == Words{target});  // our names do not change
  CHECK(hook_patterns(Words{"blocks.0.hook_mlp_out", "logits"}) == Words{"blocks.0.feed_forward.output", "logits"});

  // Sets the heads' outputs to zero, by either name.
  const auto run_without = [](const std::string& name) {
    Observed observed({}, {"logits"});
    const Hooks hooks(hook_patterns(Words{name}),
                      Hooks::Replace{[](const std::string&, const Tensor& x) { return Tensor::zeros_like(x); }});
    nn::ForwardPass pass;
    return (*observed.model)(Tensor::from({1, 4}, std::vector<int32_t>{1, 2, 3, 4}), pass);
  };
  for (const char* name : {"blocks.*.attn.hook_z", "blocks.*.attention.read"})
    CHECK(largest_difference(run_without(name), run_without("blocks.*.attention.head_output")) == 0);
}

TEST_CASE("former hook names: each matches the value of its current name, also by a pattern") {
  const std::map<std::string, std::string> renamed = {
      {"blocks.0.attention.read", "blocks.0.attention.head_output"},
      {"blocks.0.feed_forward.hidden_before", "blocks.0.feed_forward.pre_activation"},
      {"blocks.0.attention.row_zero_share", "blocks.0.attention.row_zero_fraction"},
      {"blocks.0.attention.row_maximum", "blocks.0.attention.row_max"}};
  for (const auto& each : renamed) {
    const std::string &former = each.first, &current = each.second;
    CAPTURE(former);
    CHECK(resolve_hook_names(former) == Words{current});
    CHECK(resolve_hook_names(current) == Words{current});
    const Observed by_former({}, {former}), by_current({}, {current});
    REQUIRE(by_former.shown.size() == 1);
    CHECK(by_former.shown.begin()->first == current);
    CHECK(largest_difference(by_former.shown.begin()->second, by_current.shown.at(current)) == 0);
  }
  // A pattern matches the values that it matched before.
  const auto names = [](const std::string& pattern) {
    std::set<std::string> all;
    for (const auto& [name, value] : Observed({}, {pattern}).shown) all.insert(name.substr(name.rfind('.') + 1));
    return all;
  };
  CHECK(names("*.read") == std::set<std::string>{"head_output"});
  CHECK(names("*.hidden_*") == std::set<std::string>{"pre_activation"});
  CHECK(names("*.hidden*") == std::set<std::string>{"hidden", "pre_activation"});
  CHECK(names("*read") == std::set<std::string>{"head_output"});
  CHECK(names("*.row_*") == std::set<std::string>{"row_sum", "row_entropy", "row_zero_fraction", "row_max"});
  expect_error([] { Observed({}, {"*.hidden_befor"}); }).names("hooks").value("'*.hidden_befor'");
}

TEST_CASE("hook names: an error has the name as it was given, not the name that it stands for") {
  expect_error([] { Observed({}, {"blocks.7.attn.hook_z"}); })
      .names("hooks")
      .value("'blocks.7.attn.hook_z'")
      .offers("blocks.0.output");
  expect_error([] { Observed({}, {"blocks.9*.mlp.hook_post"}); }).names("hooks").value("'blocks.9*.mlp.hook_post'");
  expect_error([] { Observed({}, {"blocks.7.attention.read"}); }).names("hooks").value("'blocks.7.attention.read'");
}

TEST_CASE("TransformerLens's names: a star for the layer matches one value of each block") {
  for (const HookAlias& alias : hook_aliases()) {
    if (!alias.in_block) continue;
    CAPTURE(alias.source);
    std::set<std::string> of_each;
    for (const char* layer : {"0", "1", "2", "3"}) of_each.insert(text("blocks.", layer, ".", alias.target));
    for (const std::string& pattern : Words{"blocks.*." + alias.source, "*." + alias.source}) {
      const Observed observed({{"layers", "4"}}, {pattern});
      std::set<std::string> names;
      for (const auto& [name, value] : observed.shown) names.insert(name);
      CHECK(names == of_each);
    }
  }
  CHECK(Observed({{"layers", "12"}}, {"blocks.1*.hook_resid_pre"}).shown.size() == 3);  // 1, 10 and 11
}

TEST_CASE("TransformerLens's names: the error for a misspelt name has the nearest name and ours") {
  const auto refused = [](const char* name) { return expect_error([&] { resolve_hook_names(name); }).names(name); };
  Message message = refused("blocks.3.attn.hook_patern").offers("'blocks.3.attn.hook_pattern'");
  message.offers("blocks.3.attention.weights");
  refused("blocks.0.attn.pattern").offers("'blocks.0.attn.hook_pattern'");
  refused("blocks.0.hook_residmid").offers("'blocks.0.hook_resid_mid'");
  message = refused("blocks.*.mlp.hook_pst").offers("'blocks.*.mlp.hook_post'");
  message.offers("blocks.*.feed_forward.hidden");
  refused("hook_embd").offers("'hook_embed'").offers("token_embedding.output");
  refused("hook_pos_embed").offers("hook_embed");
}
