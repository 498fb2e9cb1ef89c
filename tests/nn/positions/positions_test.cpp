// Positions: the papers' formulas, and consistent positions with documents and with a cache.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/positions/base/position.h"
#include "tests/support/golden_cases.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::expect_error;
using orrery::testing::largest_difference;
using orrery::testing::Message;
using orrery::testing::random_tensor;

namespace {

constexpr PositionOptions small{.context = 8, .width = 12, .heads = 2};

std::unique_ptr<Position> make(const std::string& spec, const PositionOptions& options = small) {
  auto position = make_position(parse_spec(spec), options);
  name_paths(*position);
  convert(*position, Dtype::f64);
  for (const NamedParameter& p : parameters_of(*position)) fill(p.parameter->value, normal(1), RandomKey{5, 6});
  return position;
}
// Every position, some with settings. Sinusoids at their default scale are too small to detect.
const std::vector<std::string> all_specs = [] {
  std::vector<std::string> all = {"alibi(learned=yes)", "relative(7, bias)", "rotary(base=100, pairs=interleaved)",
                                  "sinusoidal(scale=1)"};
  for (const std::string& name : positions().names())
    if (name != "sinusoidal") all.push_back(name);
  return all;
}();

Tensor rotated(const std::string& spec, const Tensor& x, Cache* cache = nullptr) {
  ForwardPass pass;
  pass.cache = cache;
  return make(spec)->rotate(x, pass);
}
Tensor tokens_between(const Tensor& x, int64_t begin, int64_t end) { return slice(x, 1, begin, end); }
Tensor reversed(const Tensor& x) {
  std::vector<Tensor> tokens;
  for (int64_t t = x.size(1); t-- > 0;) tokens.push_back(tokens_between(x, t, t + 1));
  return concatenate(tokens, 1);
}

// A softmax attention with a position, in f64, with random parameters.
struct Reader {
  std::unique_ptr<Position> position;
  std::unique_ptr<Sublayer> attention;
  Reader(const std::string& spec, bool causal, const std::string& attention_spec = "softmax")
      : position(make(spec)),
        attention(make_attention(parse_spec(attention_spec), {.width = small.width,
                                                              .heads = small.heads,
                                                              .causal = causal,
                                                              .context = small.context,
                                                              .position = position.get()})) {
    name_paths(*attention);
    convert(*attention, Dtype::f64);
    for (const NamedParameter& p : parameters_of(*attention)) fill(p.parameter->value, normal(0.5), RandomKey{7, 8});
  }
  Tensor operator()(const Tensor& x, const Tensor& documents = {}) {
    ForwardPass pass;
    pass.document_ids = documents;
    return (*attention)((*position)(x, pass), pass);
  }
};

}  // namespace

TEST_CASE("positions agree with the golden files, outputs and gradients") {
  int compared = 0;
  for (const orrery::testing::GoldenCase& golden : orrery::testing::golden_cases("positions.safetensors")) {
    INFO(golden.name);
    const Tensor x = golden.leaf("x");
    const bool rotary = golden.name.starts_with("rotary");
    const std::string spec = rotary                        ? "rotary(pairs=" + golden.option("layout") + ")"
                             : golden.spec == "sinusoidal" ? "sinusoidal(scale=1)"
                                                           : golden.spec;
    const auto position =
        make_position(parse_spec(spec), {.context = golden.has("table") ? golden.tensor("table").size(0) : 20,
                                         .width = rotary ? x.size(2) * x.size(3) : x.size(2),
                                         .heads = rotary ? x.size(2) : 1});
    convert(*position, Dtype::f64);
    if (golden.has("table")) parameters_of(*position)[0].parameter->value.copy_from(golden.tensor("table"));
    Cache cache;
    cache.length = golden.number("offset", 0);
    ForwardPass pass;
    pass.cache = &cache;
    const Tensor y = rotary ? position->rotate(x, pass) : position->forward(x, pass);
    CHECK(largest_difference(y, golden.tensor("y")) <= 1e-12);
    backward(y, golden.tensor("dy"));
    CHECK(largest_difference(x.grad(), golden.tensor("dx")) <= 1e-12);
    if (golden.has("table"))
      CHECK(largest_difference(parameters_of(*position)[0].parameter->value.grad(), golden.tensor("dtable")) <= 1e-12);
    ++compared;
  }
  CHECK(compared >= 8);
}

TEST_CASE("rotary: scores depend on the distance alone") {
  const Tensor one_query = random_tensor({1, 1, 2, 6}, 1), one_key = random_tensor({1, 1, 2, 6}, 2);
  for (const char* spec :
       {"rotary", "rotary(pairs=interleaved)", "rotary(base=50, partial_rotary_factor=0.6666666667)"}) {
    INFO(spec);
    const Tensor q = rotated(spec, broadcast_to(one_query, {1, 8, 2, 6})),
                 k = rotated(spec, broadcast_to(one_key, {1, 8, 2, 6}));
    const Tensor scores = matmul(permute(q, {0, 2, 1, 3}), permute(k, {0, 2, 1, 3}), {.b = true});  // (1, 2, 8, 8)
    const std::vector<double> s = scores.to_vector();
    for (size_t head = 0; head < 2; ++head)
      for (size_t i = 1; i < 8; ++i)
        for (size_t j = 1; j < 8; ++j)
          CHECK(std::abs(s[(head * 8 + i) * 8 + j] - s[(head * 8 + i - 1) * 8 + j - 1]) <= 1e-13);
    CHECK(std::abs(s[1] - s[0]) > 0.01);
    CHECK(std::abs(s[1] - s[8]) > 0.01);  // the sign of the distance counts
  }
}

TEST_CASE("rotary: angles follow the formula, and the other channels do not change") {
  const Tensor x = random_tensor({2, 8, 2, 6}, 3);
  const Tensor y = rotated("rotary(base=50, partial_rotary_factor=0.6666666667)", x);
  const std::vector<double> in = x.to_vector(), out = y.to_vector();
  for (size_t row = 0; row < 2 * 8 * 2; ++row) {
    const double position_index = static_cast<double>(row / 2 % 8);
    const double* const a = &in[row * 6];
    for (size_t i = 0; i < 2; ++i) {
      const double angle = position_index / std::pow(50., static_cast<double>(2 * i) / 4);
      CHECK(out[row * 6 + i] == doctest::Approx(a[i] * std::cos(angle) - a[2 + i] * std::sin(angle)));
      CHECK(out[row * 6 + 2 + i] == doctest::Approx(a[i] * std::sin(angle) + a[2 + i] * std::cos(angle)));
    }
    CHECK(out[row * 6 + 4] == a[4]);
    CHECK(out[row * 6 + 5] == a[5]);
  }
}

TEST_CASE("rotary: rotation by p and by -p is the identity, and norms do not change") {
  const Tensor angle = random_tensor({5, 3}, 4);
  std::vector<double> cosine, sine;
  for (const double a : angle.to_vector()) cosine.push_back(std::cos(a)), sine.push_back(std::sin(a));
  const Tensor c = Tensor::from({5, 3}, cosine, Dtype::f64), s = Tensor::from({5, 3}, sine, Dtype::f64);
  const Tensor x = random_tensor({2, 5, 3, 7}, 5);
  for (const bool interleaved : {false, true}) {
    const Tensor there = rotate_pairs(x, {c, s, interleaved});
    CHECK(largest_difference(there, x) > 0.1);
    CHECK(largest_difference(rotate_pairs(there, {c, -s, interleaved}), x) <= 1e-14);
    CHECK(largest_difference(sum(there * there, {-1}), sum(x * x, {-1})) <= 1e-13);
  }
}

TEST_CASE("rotary: interleaved is half_split with the channels in another order") {
  const Tensor x = random_tensor({2, 8, 2, 6}, 6);
  const auto pick = [](const Tensor& t, const std::vector<int>& order) {
    std::vector<Tensor> channels;
    for (const int c : order) channels.push_back(slice(t, 3, c, c + 1));
    return concatenate(channels, 3);
  };
  const std::vector<int> halves = {0, 2, 4, 1, 3, 5};
  const Tensor interleaved = rotated("rotary(pairs=interleaved)", x);
  CHECK(largest_difference(pick(interleaved, halves), rotated("rotary", pick(x, halves))) <= 1e-15);
  CHECK(largest_difference(interleaved, rotated("rotary", x)) > 0.1);
}

TEST_CASE("rotary in f32 and bf16 has angles as exact as in f64") {
  const PositionOptions far{.context = 4000, .width = 4, .heads = 1};
  const auto position = make_position(parse_spec("rotary"), far);
  const Tensor x = random_tensor({1, 4000, 1, 4}, 7, Dtype::bf16);
  ForwardPass pass;
  const Tensor exact = position->rotate(x.to(Dtype::f64), pass);
  CHECK(largest_difference(position->rotate(x.to(Dtype::f32), pass), exact.to(Dtype::f32)) <= 1e-6);
  CHECK(largest_difference(position->rotate(x, pass), exact.to(Dtype::bf16)) <= 0.02);
}

TEST_CASE("sinusoidal values are those of the paper") {
  ForwardPass pass;
  const PositionOptions odd{.context = 6, .width = 7};
  const Tensor y = (*make("sinusoidal(scale=1)", odd))(Tensor::zeros({1, 6, 7}, Dtype::f64), pass);
  const std::vector<double> s = y.to_vector();
  for (int p = 0; p < 6; ++p)
    for (int i = 0; i < 4; ++i) {
      const double angle = p / std::pow(10000., 2. * i / 7);
      CHECK(s[static_cast<size_t>(p * 7 + 2 * i)] == doctest::Approx(std::sin(angle)));
      if (i < 3) CHECK(s[static_cast<size_t>(p * 7 + 2 * i + 1)] == doctest::Approx(std::cos(angle)));
    }
  CHECK(largest_difference((*make("sinusoidal(scale=0.25)", odd))(Tensor::zeros({1, 6, 7}, Dtype::f64), pass),
                           y * 0.25) == 0);
}

TEST_CASE("ALiBi: the paper's slopes for 8 and for 12 heads, times the distance") {
  const auto bias = [](int64_t heads) {
    return make("alibi", {.context = 4, .width = heads, .heads = heads})->relative_bias(4).to_vector();
  };
  std::vector<double> slopes;
  for (int h = 1; h <= 8; ++h) slopes.push_back(std::exp2(-h));
  for (size_t h = 0; h < 8; ++h)
    for (size_t d = 0; d < 4; ++d) CHECK(bias(8)[h * 4 + d] == -slopes[h] * static_cast<double>(d));
  for (const double power : {0.5, 1.5, 2.5, 3.5}) slopes.push_back(std::exp2(-power));
  for (size_t h = 0; h < 12; ++h) CHECK(bias(12)[h * 4 + 3] == doctest::Approx(-3 * slopes[h]).epsilon(1e-15));
}

TEST_CASE("ALiBi with learned slopes begins with those of the paper") {
  const PositionOptions options{.context = 300, .width = 6, .heads = 6};
  const auto fixed = make_position(parse_spec("alibi"), options),
             learned = make_position(parse_spec("alibi(yes)"), options);
  CHECK(parameters_of(*fixed).empty());
  initialize(*learned, 1);
  CHECK(largest_difference(learned->relative_bias(300), fixed->relative_bias(300).to(Dtype::f32)) == 0);
  convert(*learned, Dtype::bf16);
  CHECK(learned->relative_bias(300).dtype() == Dtype::f32);  // 257 is not representable in bf16
  CHECK(largest_difference(learned->relative_bias(300), fixed->relative_bias(300).to(Dtype::f32)) == 0);
}

TEST_CASE("relative: the sizes of the tables, and zero gradient for unused distances") {
  for (const char* form : {"keys", "bias"}) {
    INFO(form);
    const auto position = make("relative(5, " + std::string(form) + ")");
    const Tensor table = parameters_of(*position)[0].parameter->value;
    const bool keys = std::string(form) == "keys";
    CHECK(table.shape() == (keys ? Shape{6, 6} : Shape{2, 6}));
    sum(keys ? position->relative_embedding(4) : position->relative_bias(4)).backward();
    const Tensor by_distance = keys ? table.grad() : transpose(table.grad());
    CHECK(largest_difference(by_distance.slice(0, 4), Tensor::full(by_distance.slice(0, 4).shape(), 1, Dtype::f64)) ==
          0);
    CHECK(largest_difference(by_distance.slice(4, 6), Tensor::zeros(by_distance.slice(4, 6).shape(), Dtype::f64)) == 0);
    CHECK(bool(position->relative_embedding(4)) == keys);
    CHECK(bool(position->relative_bias(4)) != keys);
  }
  const auto largest = make("relative");
  CHECK(parameters_of(*largest)[0].parameter->value.size(0) == small.context);
}

TEST_CASE("an offset, from a cache, gives a slice of the result for the whole sequence") {
  const Tensor x = random_tensor({2, 8, 12}, 8), q = random_tensor({2, 8, 2, 6}, 9);
  const NoGrad guard;
  for (const std::string& spec : all_specs) {
    INFO(spec);
    const auto position = make(spec);
    ForwardPass whole, later;
    Cache cache;
    cache.length = 3;
    later.cache = &cache;
    CHECK(largest_difference((*position)(tokens_between(x, 3, 8), later),
                             tokens_between((*position)(x, whole), 3, 8)) == 0);
    CHECK(largest_difference(position->rotate(tokens_between(q, 3, 8), later),
                             tokens_between(position->rotate(q, whole), 3, 8)) == 0);
  }
}

TEST_CASE("packed documents equal separate documents, for every position") {
  const Tensor x = random_tensor({1, 8, 12}, 10);
  const Tensor documents = Tensor::from({1, 8}, std::vector<int32_t>{4, 4, 4, 0, 0, 9, 9, 9});
  for (const std::string& spec : all_specs)
    for (const bool causal : {true, false}) {
      INFO(spec, (causal ? ", causal" : ", full"));
      Reader read(spec, causal);
      const Tensor packed = read(x, documents);
      CHECK(largest_difference(packed, concatenate({read(tokens_between(x, 0, 3)), read(tokens_between(x, 3, 5)),
                                                    read(tokens_between(x, 5, 8))},
                                                   1)) <= 1e-12);
      CHECK(largest_difference(packed, read(x)) > 1e-3);
    }
}

TEST_CASE("alibi and relative use |i - j|: a full attention of the reversed text is reversed, a rotary one is not") {
  const Tensor x = random_tensor({2, 7, 12}, 11);
  const auto difference = [&](const std::string& spec) {
    Reader read(spec, false);
    return largest_difference(read(reversed(x)), reversed(read(x)));
  };
  for (const char* spec : {"none", "alibi", "alibi(learned=yes)", "relative", "relative(7, bias)"}) {
    INFO(std::string(spec));
    CHECK(difference(spec) <= 1e-12);
  }
  for (const char* spec : {"rotary", "rotary(base=100, pairs=interleaved)"}) CHECK(difference(spec) > 1e-3);
}

TEST_CASE("without its position an attention has another output") {
  const Tensor x = random_tensor({2, 7, 12}, 12);
  const Tensor plain = Reader("none", true)(x);
  for (const std::string& spec : all_specs) {
    if (spec == "none") continue;
    INFO(spec);
    CHECK(largest_difference(Reader(spec, true)(x), plain) > 1e-3);
  }
}

TEST_CASE("relative positions with a span shorter than the context") {
  const Tensor x = random_tensor({2, 8, 12}, 13);
  Reader narrow("relative(3)", true, "softmax(span=fixed(3))"), wide("relative(7)", true, "softmax(span=fixed(3))");
  const Tensor table = parameters_of(*narrow.position)[0].parameter->value,
               larger = parameters_of(*wide.position)[0].parameter->value;
  table.copy_from(larger.slice(0, 4));
  CHECK(largest_difference(narrow(x), wide(x)) == 0);
  Message of_span = expect_error([] { Reader("relative(3)", true, "softmax(span=fixed(4))"); });
  of_span.names("softmax(span=fixed(4))").names("relative(3)").value(3).value(4);
  of_span.offers("relative(4)").offers("span").offers(3);
  const auto six = [] { Reader("relative(6, bias)", true); };
  expect_error(six).names("relative(6, bias)").value(6).value(7).offers("relative(7)").offers("span").offers(6);
}

TEST_CASE("positions are counted within documents, also if these are not contiguous") {
  const Tensor x = Tensor::zeros({2, 5, 1});
  ForwardPass pass;
  CHECK(!positions_of(x, pass));
  pass.document_ids = Tensor::from({2, 5}, std::vector<int32_t>{7, 7, 1, 1, 1, 2, 3, 2, 2, 3});
  CHECK(positions_of(x, pass).to_vector() == std::vector<double>{0, 1, 0, 1, 2, 0, 0, 1, 2, 1});
  const auto shorter = [&] { positions_of(Tensor::zeros({2, 4, 1}), pass); };
  expect_error(shorter).names("document_ids").value("(2, 5)").value("i32").offers("i32").offers("(2, 4)");
  Cache cache;
  pass.cache = &cache;
  expect_error([&] { positions_of(x, pass); })
      .names("document_ids")
      .names("cache")
      .offers("one text")
      .offers("leave one");
}

TEST_CASE("invalid settings of positions have error messages at construction") {
  const auto refusal = [](const std::string& spec, const PositionOptions& options = small) {
    return expect_error([&] { make_position(parse_spec(spec), options); });
  };
  const std::string factor = "partial_rotary_factor", half = "rotary(partial_rotary_factor=0.5)";
  const PositionOptions of_five{.context = 8, .width = 15, .heads = 3}, of_six{.context = 8, .width = 12, .heads = 2};
  const PositionOptions of_three{.context = 8, .width = 12, .heads = 2, .head_size = 3};
  refusal("rotary", of_five).names("rotary").names(factor + " (1)").names("head size (5)").value(5).offers(2);
  refusal(half, of_six).names(half).names(factor + " (0.5)").names("head size (6)").value(3).offers("even").offers(2);
  refusal("rotary", of_three).names("head size (3)").value(3);
  refusal("rotary(partial_rotary_factor=0)").names("rotary").names(factor).value(0).offers(0);
  refusal("rotary(partial_rotary_factor=1.5)").names("rotary").names(factor).value(1.5).offers(1);
  refusal("rotary(pairs=thirds)").names("pairs").value("thirds").offers("half_split");
  refusal("relative(0)").names("relative(0)").names("S").offers(1).value(0);
  refusal("relative(-3, bias)").names("relative(-3, bias)").names("S").offers(1).value(-3);
  refusal("relative(many)").names("relative(many)").names("S").value("'many'").offers("whole number");
  refusal("relative(4, values)").value("values").offers("bias");
  for (const std::string name : {"learned", "none"})
    refusal(name + "(3)").names("position").value(name + "(3)").offers("position=" + name);
  refusal("rotari").names("position").value("'rotari'").offers("'rotary'");

  ForwardPass pass;
  Cache cache;
  cache.length = 5;
  pass.cache = &cache;
  const auto learned = [&] { make("learned")->forward(Tensor::zeros({1, 4, 12}, Dtype::f64), pass); };
  expect_error(learned).names("learned positions").value("9 positions").value(8).offers("longer context");
  const auto rotary = [&] { rotated("rotary", Tensor::zeros({1, 4, 2, 6}, Dtype::f64), &cache); };
  expect_error(rotary).names("rotary positions").value("9 positions").value(8).offers("longer context");
  expect_error([&] { rotated("rotary", Tensor::zeros({1, 4, 2, 5}, Dtype::f64)); }).names("head size (5)");
  const auto without_heads = [] { rotated("rotary", Tensor::zeros({1, 4, 12}, Dtype::f64)); };
  expect_error(without_heads).names("rotary positions").names("heads").value("(1, 4, 12)");
}
