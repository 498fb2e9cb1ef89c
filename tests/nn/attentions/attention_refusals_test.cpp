// Rejected attention settings. Each message names the spec, the value and an alternative.
#include <doctest/doctest.h>

#include <algorithm>

#include "engine/autograd/autograd.h"
#include "nn/attentions/base/attention.h"
#include "tests/support/errors.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::error_of;
using orrery::testing::expect_error;
using orrery::testing::Message;
using orrery::testing::random_tensor;

namespace {

constexpr int64_t width = 12, heads = 2, context = 32;

struct Place {
  std::string position = "none";
  bool causal = true;
  int64_t encoder_width = 0;
};
const Place cross{.causal = false, .encoder_width = 5};

// Makes position and layer as a model does, without a forward pass.
void make(const std::string& spec, const Place& setting = {}) {
  const auto position = make_position(parse_spec(setting.position),
                                      {.context = context, .width = width, .heads = heads, .causal = setting.causal});
  make_attention(parse_spec(spec), {.width = width,
                                    .heads = heads,
                                    .causal = setting.causal,
                                    .context = context,
                                    .position = position.get(),
                                    .encoder_width = setting.encoder_width});
}
Message refusal(const std::string& spec, const Place& setting = {}) {
  return expect_error([&] { make(spec, setting); });
}

struct Refused {
  std::string spec;
  std::vector<std::string> terms;  // in the order of the message
  Place setting = {};
};
void check_all(const std::vector<Refused>& refused, bool names_spec = false) {
  for (const Refused& one : refused) {
    INFO(one.spec, ", position ", one.setting.position);
    Message message = refusal(one.spec, one.setting);
    if (names_spec) message.names(one.spec);
    for (const std::string& term : one.terms) message.names(term);
  }
}

// Returns the spec that `text` stands for; a preset is expanded.
Spec meant(const std::string& text) {
  const Spec spec = parse_spec(text);
  const std::string& preset = attentions().at(spec.name).preset;
  return preset.empty() ? spec : nn::expand_preset(preset, spec);
}

// Returns the registered attentions except those in `left_out`.
std::vector<std::string> without(const std::vector<std::string>& left_out) {
  std::vector<std::string> names = attentions().names();
  std::erase_if(names, [&](const auto& name) { return std::count(left_out.begin(), left_out.end(), name) > 0; });
  return names;
}

}  // namespace

TEST_CASE("cross attention rejects settings that need a distance") {
  const std::string of_one = "one sequence", crossed = "cross attention";
  check_all({{"softmax(span=fixed(3))", {"softmax", "span=fixed(3)", of_one, crossed}, cross},
             {"softmax(span=adaptive_span(8))", {"softmax", "span=adaptive_span(8)", of_one, crossed}, cross},
             {"pointwise(relu, span=dynamic_span(8))", {"pointwise", "span=dynamic_span(8)", of_one, crossed}, cross},
             {"relu_former(span=fixed(3))", {"relu_former", "span=fixed(3)", of_one, crossed}, cross},
             {"naive(span=fixed(3))", {"pointwise", "span=fixed(3)", of_one, crossed}, cross},
             {"gau", {"gau", "own sequence", crossed}, cross}});
  for (const std::string& name : without({"gau", "linear"}))
    for (const char* position : {"alibi", "relative(31)", "relative(31, bias)"}) {
      INFO(name, ", ", position);
      Place setting = cross;
      setting.position = position;
      Message(error_of([&] { make(name, setting); }))  // for every attention: not in the golden file
          .names(meant(name).name)
          .value("alibi")
          .value("relative")
          .offers("position")
          .names(crossed);
    }
  for (const std::string& name : without({"gau"}))
    for (const char* position : {"none", "learned", "sinusoidal", "rotary"}) {
      INFO(name, ", ", position);
      Place setting = cross;
      setting.position = position;
      CHECK_NOTHROW(make(name, setting));
    }
}

TEST_CASE("linear attention rejects settings that need weights or scores") {
  const std::vector<std::string> no_scores = {"linear", "scores", "position=learned, sinusoidal, rotary or none"};
  check_all(
      {{"linear(dropout=0.1)", {"linear", "dropout", "0", "0.1"}},
       {"linear(relu)", no_scores, {.position = "alibi"}},
       {"linear(relu)", no_scores, {.position = "relative(31)"}},
       {"linear(relu)", no_scores, {.position = "relative(31, bias)"}},
       {"linear(soft_cap=3)", {"linear(soft_cap=3)", "soft_cap=3", "softmax", "linear", "function, normalize, gate"}}});
}

TEST_CASE("spans and slots are rejected by attentions that do not support them") {
  for (const std::string name : {"linear", "sparsemax", "entmax15", "rela"}) {
    INFO(name);
    for (const std::string option : {"span=fixed(3)", "span=adaptive_span(8)"})
      refusal(name + "(" + option + ")").names(name).value(option).offers("softmax or pointwise");
    for (const std::string option : {"persistent=3", "persistent=slots(3, split=yes)"})
      refusal(name + "(" + option + ")").names(name).value(option).offers("softmax, pointwise or relu_former");
  }
  check_all({{"gau(span=fixed(3))", {"gau", "span=fixed(3)", "pointwise(relu_squared)"}},
             {"gau(persistent=3)", {"gau", "persistent=3", "pointwise(relu_squared)"}}});
  for (const std::string name : {"softmax", "pointwise", "relu_former"})
    for (const char* setting : {"(span=adaptive_span(8, R=4))", "(persistent=3)", "(persistent=slots(3, split=yes))"})
      CHECK_NOTHROW(make(name + setting));
}

TEST_CASE("gau rejects settings that it has itself or does not support") {
  check_all(
      {{"gau(gate=silu)", {"gau", "gate", "none", "silu"}},
       {"gau(qk_norm=rms)", {"gau", "qk_norm", "none", "rms"}},
       {"gau(scale=0.5)", {"gau", "scale", "0", "0.5"}},
       {"gau", {"gau", "position=relative(S, keys)", "relative(S, bias)", "rotary"}, {.position = "relative(31)"}},
       {"gau", {"gau", "one head", "2", "heads=1"}, {.position = "relative(31, bias)"}},
       {"gau", {"gau", "one head", "2", "heads=1"}, {.position = "alibi"}},
       {"gau(size=5)",
        {"gau(size=5)", "rotary", "partial_rotary_factor (1)", "head size (5)", "5", "even", "2"},
        {.position = "rotary"}}});
  CHECK_NOTHROW(make("gau(size=6)", {.position = "rotary"}));
}

TEST_CASE("spans that cannot work name the spec, the value and the range") {
  const std::string kinds = "none, fixed(S), adaptive_span(S, R=32) or dynamic_span(S, R=32)", range = "[1, 32]";
  check_all({{"softmax(span=fixed(33))", {"span", "fixed(33)", "33", "32", range}},
             {"pointwise(span=adaptive_span(40))", {"span", "adaptive_span(40)", "40", "32", range}},
             {"softmax(span=dynamic_span(33, R=4))", {"span", "dynamic_span(33, R=4)", "33", "32", range}},
             {"softmax(span=window(3))", {"span", "'window'", kinds}},
             {"softmax(span=8)", {"span", "'8'", kinds}},
             {"softmax(span=fixed)", {"span", "fixed", "S", "1", "fixed(256)"}},
             {"softmax(span=adaptive_span)", {"span", "adaptive_span", "S", "1", "adaptive_span(256)"}},
             {"softmax(span=dynamic_span)", {"span", "dynamic_span", "S", "1", "dynamic_span(256)"}},
             {"softmax(span=fixed(0))", {"fixed", "S", "0", "1"}},
             {"softmax(span=adaptive_span(-8))", {"adaptive_span", "S", "-8", "1"}},
             {"softmax(span=dynamic_span(0))", {"dynamic_span", "S", "0", "1"}},
             {"softmax(span=dynamic_span(8, R=0))", {"dynamic_span", "R", "0", "1"}},
             {"softmax(span=dynamic_span(8, R=inf))", {"dynamic_span", "R", "inf", "finite"}},
             {"softmax(span=dynamic_span(far))", {"dynamic_span", "S", "'far'", "whole number"}},
             {"softmax(span=dynamic_span(8, 4, 2))", {"dynamic_span", "2", "'2'", "S, R"}},
             {"softmax(span=adaptive_span(8, width=2))", {"adaptive_span", "'width'", "S, R"}}},
            true);
  CHECK_NOTHROW(make("softmax(span=fixed(32))"));
}

TEST_CASE("slots that cannot work name the spec, the value and the range") {
  check_all({{"softmax(persistent=-3)", {"persistent", "N", "-3", "1", "persistent=none"}},
             {"softmax(persistent=0)", {"persistent", "N", "0", "1", "persistent=none"}},
             {"softmax(persistent=slots(-3))", {"slots", "N", "-3", "1"}},
             {"softmax(persistent=slots)", {"persistent", "slots", "N", "1", "slots(64)", "slots"}},
             {"softmax(persistent=slots(2.5))", {"slots", "N", "'2.5'", "whole number"}},
             {"softmax(persistent=slots(3, split=maybe))", {"slots", "split", "'maybe'", "yes", "no"}},
             {"softmax(persistent=many)", {"persistent", "'many'", "whole number"}},
             {"softmax(persistent=memory(3))", {"persistent", "'memory(3)'", "none", "number", "slots(N, ...)"}}},
            true);
}

TEST_CASE("learned parameters per model need a model") {
  check_all({{"pointwise(prelu, parameters_per=model)", {"pointwise", "parameters_per=model", "head or layer"}}});
  CHECK_NOTHROW(make("pointwise(relu, parameters_per=model)", {}));
}

TEST_CASE("numbers that are invalid, not finite or out of range are rejected") {
  check_all({{"pointwise(relu, alpha=two)", {"pointwise", "alpha", "'two'", "number", "learned(NUMBER)"}},
             {"pointwise(relu, alpha=nan)", {"pointwise", "alpha", "'nan'", "number", "learned(NUMBER)"}},
             {"pointwise(relu, alpha=inf)", {"pointwise", "alpha", "inf", "finite"}},
             {"pointwise(relu, alpha=-inf)", {"pointwise", "alpha", "-inf", "finite"}},
             {"pointwise(relu, alpha=learned(inf))", {"pointwise", "alpha", "inf", "finite"}},
             {"pointwise(relu, alpha=learned(one))", {"pointwise", "alpha", "'one'", "number"}},
             {"pointwise(elu(inf))", {"pointwise(elu(inf))", "elu", "alpha", "inf", "finite"}},
             {"pointwise(elu(nan))", {"pointwise(elu(nan))", "elu", "alpha", "'nan'", "number"}},
             {"softmax(scale=inf)", {"softmax", "scale", "inf", "finite"}},
             {"softmax(scale=-1)", {"softmax", "scale", "-1", "0"}},
             {"softmax(dropout=1)", {"softmax", "dropout", "1", "1"}},
             {"softmax(soft_cap=inf)", {"softmax", "soft_cap", "inf", "finite"}},
             {"softmax(soft_cap=-30)", {"softmax", "soft_cap", "-30", "0"}},
             {"softmax(temperature=0)", {"softmax", "temperature", "0", "0"}},
             {"softmax(entropy_threshold=1.5)", {"softmax", "entropy_threshold", "1.5", "1"}},
             {"relu_former(gamma=0)", {"relu_former", "gamma", "0", "0"}},
             {"relu_former(gamma=inf)", {"relu_former", "gamma", "inf", "finite"}}});
}

TEST_CASE("other attentions reject softmax's settings; the message has the spec, the value and softmax") {
  for (const std::string& name : without({"softmax"}))
    for (const char* option : {"soft_cap=30", "temperature=2", "temperature=learned(0.5)", "entropy_threshold=0.3"}) {
      const std::string given = option, key = given.substr(0, given.find('=')), spec = name + "(" + given + ")";
      const std::string owner = meant(spec).name;
      INFO(spec);
      Message message(error_of([&] { make(spec); }));  // for every attention: not in the golden file
      message.names(print(meant(spec))).value(given).names("softmax").names(owner).offers(owner);
      const std::string& whole = message.message();
      CHECK(whole.find(key, whole.rfind(owner)) == std::string::npos);  // `owner` does not take the setting
    }
  const std::string taken = "function, alpha, length, gate, qk_norm, scale, dropout, attend_to_self, span, persistent";
  check_all(
      {{"pointwise(relu, soft_cap=30)",
        {"pointwise(relu, soft_cap=30)", "soft_cap=30", "softmax", "pointwise", "pointwise", taken}},
       {"softmax(alpha=2)", {"softmax(alpha=2)", "alpha=2", "pointwise", "softmax"}},
       {"rela(length=fixed(3))", {"rela(length=fixed(3))", "length=fixed(3)", "gau, pointwise, relu_former", "rela"}},
       {"naive(relu, alpha=2)", {"naive(relu, alpha=2)", "naive", "pointwise(relu, alpha=0)", "alpha", "pointwise"}},
       {"softmax(soft_cup=3)", {"softmax", "'soft_cup'", "'soft_cap'"}}});
}

TEST_CASE("invalid lengths have error messages") {
  const std::string kinds = "keys_visible, row_index, padded_length or fixed(n)";
  const Place full{.causal = false};
  for (const std::string name : {"pointwise", "relu_former", "gau"}) {
    INFO(name);
    for (const std::string length : {"keys", "keys_visible(3)"})
      refusal(name + "(length=" + length + ")").names(name).names("length").value("'" + length + "'").offers(kinds);
    refusal(name + "(length=fixed)").names(name).value("length=fixed(n)").names("n").offers(1).offers("fixed(256)");
    refusal(name + "(length=fixed(0))").names(name + "(length=fixed(0))").names("fixed").names("n").value(0).offers(1);
    const std::string row_index = name + "(length=row_index)";
    refusal(row_index, full).names(name).value("length=row_index").offers("causal").offers("keys_visible");
    CHECK_NOTHROW(make(row_index));
    if (name != "gau") refusal(row_index, cross).names(name).value("length=row_index").offers("causal");
  }
}

TEST_CASE("invalid sizes have error messages") {
  const auto made = [](int64_t wide, int64_t many, int64_t keys, const char* position) {
    return expect_error([&] {
      const auto position_module =
          make_position(parse_spec(position), {.context = context, .width = wide, .heads = many});
      make_attention(
          parse_spec("softmax"),
          {.width = wide, .heads = many, .kv_heads = keys, .context = context, .position = position_module.get()});
    });
  };
  made(15, 3, 0, "rotary").names("rotary").names("partial_rotary_factor (1)").names("head size (5)").value(5).offers(2);
  const char* const half_rotated = "rotary(partial_rotary_factor=0.5)";
  made(12, 2, 0, half_rotated).names("partial_rotary_factor (0.5)").names("head size (6)").value(3).offers("even");
  made(16, 3, 0, "none").names("heads (3)").value("width (16)").offers("head_size");
  made(12, 4, 3, "none").names("kv_heads (3)").value("heads (4)");
  made(12, 2, 0, "relative(8)").names("relative(8)").value(8).value(31).offers("relative(31)").offers("span").offers(8);
  CHECK_NOTHROW(make("softmax(span=fixed(8))", {.position = "relative(8)"}));
}

TEST_CASE("invalid inputs of a forward pass are rejected") {
  const NoGrad guard;
  const auto run = [](const std::string& spec, ForwardPass pass, bool causal, int64_t encoder_width = 0) {
    const auto layer = make_attention(
        parse_spec(spec),
        {.width = width, .heads = heads, .causal = causal, .context = context, .encoder_width = encoder_width});
    initialize(*layer, 1);
    (*layer)(random_tensor({1, 4, width}, 1).to(Dtype::f32), pass);
  };
  const auto refused = [&](const std::string& spec, const ForwardPass& pass, bool causal, int64_t encoder_width = 0) {
    return expect_error([&] { run(spec, pass, causal, encoder_width); });
  };
  const auto ids = [](const std::vector<int32_t>& values) {
    return Tensor::from(Shape{1, static_cast<int64_t>(values.size())}, values);
  };
  ForwardPass packed;
  packed.document_ids = ids({3, 3, 7, 3});
  refused("linear(relu)", packed, true).names("linear").value("document 3").names("sequence 0").offers("packed");
  CHECK_NOTHROW(run("softmax", packed, true));

  Cache cache;
  ForwardPass cached;
  cached.cache = &cache;
  for (const std::string name : {"softmax", "linear", "gau"})
    refused(name, cached, false).names(name).offers("causal").names("cache");
  ForwardPass with_lengths = cached;
  with_lengths.lengths = Tensor::from(Shape{1}, std::vector<int32_t>{3});
  refused("softmax", with_lengths, true).names("softmax").names("cache").value("lengths").value("document_ids");
  cache.length = 3;
  cache.entries[""] = {random_tensor({1, 3, heads, width / heads}, 2).to(Dtype::f32),
                       random_tensor({1, 3, heads, width / heads}, 3).to(Dtype::f32),
                       {}};
  const std::string padded = "length=padded_length";
  refused("pointwise(relu, " + padded + ")", cached, true).value(padded).names("cache").offers("keys_visible");
  Cache states;
  states.holds_states = true;
  ForwardPass streamed;
  streamed.cache = &states;
  refused("softmax", streamed, true).names("softmax: ").names("span").offers("softmax(span=fixed(256))");

  ForwardPass without_encoder, documents_of_one, documents_of_encoder;
  refused("softmax", without_encoder, false, 5)
      .names("cross attention")
      .names("pass.encoder_output")
      .offers("(batch, time, 5)");
  documents_of_one.encoder_output = documents_of_encoder.encoder_output = random_tensor({1, 3, 5}, 4).to(Dtype::f32);
  documents_of_one.document_ids = ids({0, 0, 1, 1});
  documents_of_encoder.encoder_document_ids = ids({0, 1, 1});
  const std::string both = "pass.document_ids and pass.encoder_document_ids";
  refused("softmax", documents_of_one, false, 5).names("cross attention").names(both).value("first");
  refused("softmax", documents_of_encoder, false, 5).names("cross attention").names(both).value("second");
  ForwardPass interrupted = documents_of_one;  // of the encoder alone
  interrupted.encoder_document_ids = ids({0, 1, 0});
  refused("linear(relu)", interrupted, false, 5).names("linear").value("document 0").offers("packed");
}
