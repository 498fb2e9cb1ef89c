// What attentions refuse, each with a sentence that names the spec, the value and what would do instead.
#include <doctest/doctest.h>

#include <functional>

#include "engine/autograd/autograd.h"
#include "nn/attentions/base/attention.h"
#include "tests/support/errors.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::error_of;
using orrery::testing::random_tensor;

namespace {

constexpr int64_t width = 12, heads = 2, context = 32;

struct Place {
  std::string position = "none";
  bool causal = true;
  int64_t memory_width = 0;
};
const Place cross{.causal = false, .memory_width = 5};

// Position and layer, as a model makes them; nothing runs.
std::string refusal(const std::string& spec, const Place& setting = {}) {
  return error_of([&] {
    const auto position = make_position(parse_spec(setting.position),
                                        {.context = context, .width = width, .heads = heads, .causal = setting.causal});
    make_attention(parse_spec(spec), {.width = width,
                                      .heads = heads,
                                      .causal = setting.causal,
                                      .context = context,
                                      .position = position.get(),
                                      .memory_width = setting.memory_width});
  });
}

struct Refused {
  std::string spec, sentence;
  Place setting = {};
};
void check_all(const std::vector<Refused>& refused) {
  for (const Refused& one : refused) {
    INFO(one.spec, ", position ", one.setting.position);
    CHECK(refusal(one.spec, one.setting) == one.sentence);
  }
}

// What is made of a spec: that of a preset is another.
Spec meant(const std::string& text) {
  const Spec spec = parse_spec(text);
  const std::string& preset = attentions().at(spec.name).preset;
  return preset.empty() ? spec : from_preset(preset, spec);
}

std::vector<std::string> without(const std::vector<std::string>& excluded) {
  std::vector<std::string> names = attentions().names();
  std::erase_if(names, [&](const auto& name) { return std::count(excluded.begin(), excluded.end(), name) > 0; });
  return names;
}

}  // namespace

TEST_CASE("cross attention refuses what needs a distance") {
  const std::string no_distances = " needs queries and keys of one sequence; cross attention has no distances";
  check_all({{"softmax(span=fixed(3))", "softmax: span=fixed(3)" + no_distances, cross},
             {"softmax(span=adaptive_span(8))", "softmax: span=adaptive_span(8)" + no_distances, cross},
             {"pointwise(relu, span=dynamic_span(8))", "pointwise: span=dynamic_span(8)" + no_distances, cross},
             {"relu_former(span=fixed(3))", "relu_former: span=fixed(3)" + no_distances, cross},
             {"naive(span=fixed(3))", "pointwise: span=fixed(3)" + no_distances, cross},
             {"gau", "gau: reads its own sequence only and cannot be a cross attention", cross}});
  for (const std::string& name : without({"gau", "linear"}))
    for (const char* position : {"alibi", "relative(31)", "relative(31, bias)"}) {
      INFO(name, ", ", position);
      Place setting = cross;
      setting.position = position;
      CHECK(refusal(name, setting) == meant(name).name +
                                          ": alibi and relative positions need queries and keys of one sequence; use "
                                          "another position with cross attention");
    }
  for (const std::string& name : without({"gau"}))
    for (const char* position : {"none", "learned", "sinusoidal", "rotary"}) {
      INFO(name, ", ", position);
      Place setting = cross;
      setting.position = position;
      CHECK(refusal(name, setting) == "no error");
    }
}

TEST_CASE("linear attention refuses what needs single weights or scores") {
  const std::string no_scores =
      "linear: has no scores for a position to act on; use position=learned, sinusoidal, rotary or none";
  check_all({{"linear(dropout=0.1)", "linear: has no weights to drop, so dropout must be 0, not 0.1"},
             {"linear(relu)", no_scores, {.position = "alibi"}},
             {"linear(relu)", no_scores, {.position = "relative(31)"}},
             {"linear(relu)", no_scores, {.position = "relative(31, bias)"}}});
  CHECK(refusal("linear(soft_cap=3)")
            .starts_with("linear(soft_cap=3): soft_cap=3 is an option of softmax, not of linear; linear takes "
                         "function, normalize, gate, "));
}

TEST_CASE("spans and slots are refused where no rule for them is known") {
  for (const std::string name : {"linear", "sparsemax", "entmax15", "rela"}) {
    INFO(name);
    CHECK(refusal(name + "(span=fixed(3))") ==
          name + ": cannot be combined with span=fixed(3); use softmax or pointwise");
    CHECK(refusal(name + "(span=adaptive_span(8))") ==
          name + ": cannot be combined with span=adaptive_span(8); use softmax or pointwise");
    CHECK(refusal(name + "(persistent=3)") ==
          name + ": cannot be combined with persistent=3; use softmax, pointwise or relu_former");
    CHECK(refusal(name + "(persistent=slots(3, split=yes))") ==
          name + ": cannot be combined with persistent=slots(3, split=yes); use softmax, pointwise or relu_former");
  }
  check_all({{"gau(span=fixed(3))", "gau: cannot be combined with span=fixed(3); use pointwise(relu_squared)"},
             {"gau(persistent=3)", "gau: cannot be combined with persistent=3; use pointwise(relu_squared)"}});
  for (const std::string name : {"softmax", "pointwise", "relu_former"})
    for (const char* setting : {"(span=adaptive_span(8, R=4))", "(persistent=3)", "(persistent=slots(3, split=yes))"})
      CHECK(refusal(name + setting) == "no error");
}

TEST_CASE("gau refuses what it has already or has no place for") {
  check_all(
      {{"gau(gate=silu)", "gau: has a gate of its own, so gate must be none, not silu"},
       {"gau(qk_norm=rms)",
        "gau: queries and keys come from one z with gains of their own, so qk_norm must be none, not rms"},
       {"gau(scale=0.5)", "gau: scores are divided by n, so scale must be 0, not 0.5"},
       {"gau",
        "gau: position=relative(S, keys) adds to the scores of other attentions; use relative(S, bias), rotary "
        "or another position",
        {.position = "relative(31)"}},
       {"gau", "gau: has one head, the position has biases for 2; set heads=1", {.position = "relative(31, bias)"}},
       {"gau", "gau: has one head, the position has biases for 2; set heads=1", {.position = "alibi"}},
       {"gau(size=5)",
        "gau(size=5): rotary: channels are turned in pairs, but partial_rotary_factor (1) times the head size (5) is "
        "5; it must "
        "be an even number, at least 2",
        {.position = "rotary"}},
       {"gau(size=6)", "no error", {.position = "rotary"}}});
}

TEST_CASE("spans that cannot work name the spec, the value and the range") {
  const std::string kinds = "there are none, fixed(S), adaptive_span(S, R=32) and dynamic_span(S, R=32)";
  check_all(
      {{"softmax(span=fixed(33))",
        "softmax(span=fixed(33)): span: fixed(33) reaches back 33 tokens, the context has 32; S must be in [1, "
        "32]"},
       {"pointwise(span=adaptive_span(40))",
        "pointwise(span=adaptive_span(40)): span: adaptive_span(40) reaches back 40 tokens, the context has 32; "
        "S must be in [1, 32]"},
       {"softmax(span=dynamic_span(33, R=4))",
        "softmax(span=dynamic_span(33, R=4)): span: dynamic_span(33, R=4) reaches back 33 tokens, the context "
        "has 32; S must be in [1, 32]"},
       {"softmax(span=fixed(32))", "no error"},
       {"softmax(span=window(3))", "softmax(span=window(3)): span: no 'window'; " + kinds},
       {"softmax(span=8)", "softmax(span=8): span: no '8'; " + kinds},
       {"softmax(span=fixed)", "softmax(span=fixed): span: fixed needs S, at least 1: fixed(256)"},
       {"softmax(span=adaptive_span)",
        "softmax(span=adaptive_span): span: adaptive_span needs S, at least 1: adaptive_span(256)"},
       {"softmax(span=dynamic_span)",
        "softmax(span=dynamic_span): span: dynamic_span needs S, at least 1: dynamic_span(256)"},
       {"softmax(span=fixed(0))", "softmax(span=fixed(0)): fixed: S: 0 must be at least 1"},
       {"softmax(span=adaptive_span(-8))", "softmax(span=adaptive_span(-8)): adaptive_span: S: -8 must be at least 1"},
       {"softmax(span=dynamic_span(0))", "softmax(span=dynamic_span(0)): dynamic_span: S: 0 must be at least 1"},
       {"softmax(span=dynamic_span(8, R=0))",
        "softmax(span=dynamic_span(8, R=0)): dynamic_span: R: 0 must be at least 1"},
       {"softmax(span=dynamic_span(8, R=inf))",
        "softmax(span=dynamic_span(8, R=inf)): dynamic_span: R: inf is not a finite number"},
       {"softmax(span=dynamic_span(far))",
        "softmax(span=dynamic_span(far)): dynamic_span: S: 'far' is not a whole number"},
       {"softmax(span=dynamic_span(8, 4, 2))",
        "softmax(span=dynamic_span(8, 4, 2)): dynamic_span: takes at most 2, not '2'; there are S, R"},
       {"softmax(span=adaptive_span(8, width=2))",
        "softmax(span=adaptive_span(8, width=2)): adaptive_span: unknown key 'width'; there are S, R"}});
}

TEST_CASE("slots that cannot work name the spec, the value and the range") {
  const std::string or_none = "; at least 1 is needed, or persistent=none";
  check_all(
      {{"softmax(persistent=-3)", "softmax(persistent=-3): persistent: N = -3" + or_none},
       {"softmax(persistent=0)", "softmax(persistent=0): persistent: N = 0" + or_none},
       {"softmax(persistent=slots(-3))", "softmax(persistent=slots(-3)): slots: N: -3 must be at least 1"},
       {"softmax(persistent=slots)",
        "softmax(persistent=slots): persistent: slots needs N, at least 1: slots(64), not slots"},
       {"softmax(persistent=slots(2.5))", "softmax(persistent=slots(2.5)): slots: N: '2.5' is not a whole number"},
       {"softmax(persistent=slots(3, split=maybe))",
        "softmax(persistent=slots(3, split=maybe)): slots: split: 'maybe' is neither yes nor no"},
       {"softmax(persistent=many)", "softmax(persistent=many): persistent: 'many' is not a whole number"},
       {"softmax(persistent=memory(3))",
        "softmax(persistent=memory(3)): persistent: 'memory(3)' is neither none, nor a number of slots, nor "
        "slots(N, ...)"}});
}

TEST_CASE("numbers that are none, or not finite, or out of range") {
  const std::string form = " is neither a number nor learned nor learned(a number)";
  check_all({{"pointwise(relu, alpha=two)", "pointwise: alpha: 'two'" + form},
             {"pointwise(relu, alpha=nan)", "pointwise: alpha: 'nan'" + form},
             {"pointwise(relu, alpha=inf)", "pointwise: alpha: inf is not a finite number"},
             {"pointwise(relu, alpha=-inf)", "pointwise: alpha: -inf is not a finite number"},
             {"pointwise(relu, alpha=learned(inf))", "pointwise: alpha: inf is not a finite number"},
             {"pointwise(relu, alpha=learned(one))", "pointwise: alpha: 'one' is not a number"},
             {"pointwise(elu(inf))", "pointwise(elu(inf)): elu: alpha: inf is not a finite number"},
             {"pointwise(elu(nan))", "pointwise(elu(nan)): elu: alpha: 'nan' is not a number"},
             {"softmax(scale=inf)", "softmax: scale: inf is not a finite number"},
             {"softmax(scale=-1)", "softmax: scale: -1 must be at least 0"},
             {"softmax(dropout=1)", "softmax: dropout: 1 must be below 1"},
             {"softmax(soft_cap=inf)", "softmax: soft_cap: inf is not a finite number"},
             {"softmax(soft_cap=-30)", "softmax: soft_cap: -30 must be at least 0"},
             {"softmax(temperature=0)", "softmax: temperature: 0 must be above 0"},
             {"softmax(entropy_threshold=1.5)", "softmax: entropy_threshold: 1.5 must be at most 1"},
             {"relu_former(gamma=0)", "relu_former: gamma: 0 must be above 0"},
             {"relu_former(gamma=inf)", "relu_former: gamma: inf is not a finite number"}});
}

TEST_CASE("softmax's options on other attentions are refused by the spec, the value and the name of softmax") {
  for (const std::string& name : without({"softmax"}))
    for (const char* option : {"soft_cap=30", "temperature=2", "temperature=learned(0.5)", "entropy_threshold=0.3"}) {
      const std::string given = option, key = given.substr(0, given.find('=')), spec = name + "(" + given + ")";
      const std::string owner = meant(spec).name;
      INFO(spec);
      const std::string message = refusal(spec);
      CHECK(message.starts_with(print(meant(spec)) + ": " + given + " is an option of softmax, not of " + owner + "; " +
                                owner + " takes "));
      CHECK(message.find(key, message.find(" takes ")) == std::string::npos);  // what it takes is not that
    }
  CHECK(
      refusal("pointwise(relu, soft_cap=30)") ==
      "pointwise(relu, soft_cap=30): soft_cap=30 is an option of softmax, not of pointwise; pointwise takes function, "
      "alpha, length, gate, qk_norm, scale, dropout, attend_to_self, span, persistent");
  CHECK(refusal("softmax(alpha=2)").starts_with("softmax(alpha=2): alpha=2 is an option of pointwise, not of softmax"));
  CHECK(refusal("rela(length=fixed(3))")
            .starts_with("rela(length=fixed(3)): length=fixed(3) is an option of gau, pointwise, relu_former, not of "
                         "rela"));
  CHECK(refusal("naive(relu, alpha=2)") ==
        "naive(relu, alpha=2): naive is pointwise(relu, alpha=0), where alpha stays; use pointwise for another");
  CHECK(refusal("softmax(soft_cup=3)") == "softmax: unknown key 'soft_cup'; did you mean 'soft_cap'?");
}

TEST_CASE("lengths that cannot work") {
  const std::string kinds = "; there are keys_visible, row_index, padded_length and fixed(n)";
  const Place full{.causal = false};
  for (const std::string name : {"pointwise", "relu_former", "gau"}) {
    INFO(name);
    CHECK(refusal(name + "(length=keys)") == name + ": length is 'keys'" + kinds);
    CHECK(refusal(name + "(length=keys_visible(3))") == name + ": length is 'keys_visible(3)'" + kinds);
    CHECK(refusal(name + "(length=fixed)") == name + ": length=fixed(n) needs n, at least 1: fixed(256)");
    CHECK(refusal(name + "(length=fixed(0))") == name + "(length=fixed(0)): fixed: n: 0 must be at least 1");
    CHECK(refusal(name + "(length=row_index)", full) ==
          name + ": length=row_index counts the tokens before a query, so it needs causal attention; use keys_visible");
    CHECK(refusal(name + "(length=row_index)") == "no error");
    if (name != "gau")
      CHECK(refusal(name + "(length=row_index)", cross).starts_with(name + ": length=row_index counts the tokens"));
  }
}

TEST_CASE("sizes that cannot work") {
  const auto made = [](int64_t wide, int64_t many, int64_t keys, const char* position) {
    return error_of([&] {
      const auto place = make_position(parse_spec(position), {.context = context, .width = wide, .heads = many});
      make_attention(parse_spec("softmax"),
                     {.width = wide, .heads = many, .key_heads = keys, .context = context, .position = place.get()});
    });
  };
  CHECK(made(15, 3, 0, "rotary") ==
        "rotary: channels are turned in pairs, but partial_rotary_factor (1) times the head size (5) is 5; it must be "
        "an even number, "
        "at least 2");
  CHECK(made(12, 2, 0, "rotary(partial_rotary_factor=0.5)")
            .find("partial_rotary_factor (0.5) times the head size (6) is 3; it must be an even") != std::string::npos);
  CHECK(made(16, 3, 0, "none") == "attention: heads (3) must divide width (16), or head_size be given");
  CHECK(made(12, 4, 3, "none") == "attention: key heads (3) must divide heads (4)");
  CHECK(made(12, 2, 0, "relative(8)") ==
        "relative(8): there are terms for distances up to 8, but tokens see each other over 31; use relative(31) or a "
        "span of at most 8");
  CHECK(refusal("softmax(span=fixed(8))", {.position = "relative(8)"}) == "no error");
}

TEST_CASE("what only a pass can get wrong is refused when it comes") {
  const NoGrad guard;
  const auto run = [](const std::string& spec, Pass pass, bool causal, int64_t memory_width = 0) {
    const auto layer = make_attention(
        parse_spec(spec),
        {.width = width, .heads = heads, .causal = causal, .context = context, .memory_width = memory_width});
    initialize(*layer, 1);
    const Tensor x = random_tensor({1, 4, width}, 1).to(Dtype::f32);
    return error_of([&] { (*layer)(x, pass); });
  };
  const auto ids = [](const std::vector<int32_t>& values) {
    return Tensor::from(Shape{1, static_cast<int64_t>(values.size())}, values);
  };
  Pass packed;
  packed.document_ids = ids({3, 3, 7, 3});
  CHECK(run("linear(relu)", packed, true) ==
        "linear: document 3 of sequence 0 is not contiguous; running sums need packed documents one after the other");
  CHECK(run("softmax", packed, true) == "no error");

  Cache cache;
  Pass cached;
  cached.cache = &cache;
  for (const std::string name : {"softmax", "linear", "gau"})
    CHECK(run(name, cached, false) == name + ": only causal attention can continue from a cache");
  Pass with_lengths = cached;
  with_lengths.lengths = Tensor::from(Shape{1}, std::vector<int32_t>{3});
  CHECK(run("softmax", with_lengths, true) == "softmax: a cache holds whole sequences, without lengths and documents");
  cache.tokens = 3;
  cache.entries[""] = {random_tensor({1, 3, heads, width / heads}, 2).to(Dtype::f32),
                       random_tensor({1, 3, heads, width / heads}, 3).to(Dtype::f32),
                       {}};
  CHECK(run("pointwise(relu, length=padded_length)", cached, true) ==
        "length=padded_length: a text that goes on from a cache has no padded length; use keys_visible or fixed(n)");

  Pass without_memory, documents_of_one, documents_of_memory;
  CHECK(run("softmax", without_memory, false, 5).find("cross attention reads pass.memory (batch, time, 5)") !=
        std::string::npos);
  documents_of_one.memory = documents_of_memory.memory = random_tensor({1, 3, 5}, 4).to(Dtype::f32);
  documents_of_one.document_ids = ids({0, 0, 1, 1});
  documents_of_memory.memory_document_ids = ids({0, 1, 1});
  const std::string together =
      "softmax: cross attention reads the memory of a token's own document, so pass.document_ids and "
      "pass.memory_document_ids come together; only the ";
  CHECK(run("softmax", documents_of_one, false, 5) == together + "first is given");
  CHECK(run("softmax", documents_of_memory, false, 5) == together + "second is given");
}
