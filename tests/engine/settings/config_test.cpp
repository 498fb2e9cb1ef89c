#include "engine/settings/config.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "engine/settings/registry.h"
#include "tests/support/errors.h"
#include "tests/support/message.h"

namespace orrery {
namespace {

using testing::error_of;
using testing::expect_error;

struct Thing {
  std::string name;
  int number = 0;
};

struct Loss {
  double weight = 0.5;
  template <class V>
  void visit(V& v) {
    v("weight", weight, "of the extra loss");
  }
};

struct Nothing {
  template <class V>
  void visit(V&) {}
};

struct Everything {
  int64_t batch = 12, batches = 0;
  double rate = 1e-3, dropout = 0;
  bool bias = false;
  std::string out = "run", device = "cpu";
  Spec attention = parse_spec("softmax");
  LearnableNumber alpha{1, false};
  std::vector<double> betas = {0.9, 0.99};
  Loss loss;

  template <class V>
  void visit(V& v) {
    v("batch", batch, "sequences", at_least(1));
    v("rate|speed|pace", rate, "step size", above(0));
    v("|epochs", batches, "read, but never written", at_least(1));
    v("dropout", dropout, "fraction set to zero", fraction());
    v("bias", bias, "biases");
    v("out", out, "folder");
    v("device", device, "where", one_of({"cpu", "cuda"}));
    v("attention", attention, "how it reads");
    v("alpha", alpha, "power", between(0, 2));
    v("betas", betas, "of the moments");
    v.group("loss", loss);
  }
};

constexpr ForeignKey foreign[] = {{"lr", "rate"}, {"p", "attention.dropout"}, {"eval_iters", "all is evaluated"}};

std::string set_error(const char* key, const char* value) {
  return error_of([&] {
    Everything e;
    set_setting(e, "train", key, value, foreign);
  });
}
Everything with(const char* key, const char* value) {
  Everything e;
  set_setting(e, "train", key, value, foreign);
  return e;
}

TEST_CASE("a registry finds by name and alias, in the order of names") {
  Registry<Thing> things("thing");
  things.add({"silu", 2}, {"swish"});
  const Thing& silu = things.at("silu");
  things.add({"relu", 1});
  things.add({"elu", 3});
  CHECK(things.names() == std::vector<std::string>{"elu", "relu", "silu"});
  CHECK(&things.at("swish") == &silu);
  CHECK(things.find("gelu") == nullptr);
  CHECK(things.aliases("silu") == std::vector<std::string>{"swish"});
  CHECK(error_of([&] { things.at("swosh"); }) ==
        "thing: no 'swosh'; did you mean 'swish' (silu)? there are elu, relu, silu");
  CHECK(error_of([&] { things.at("rleu"); }) == "thing: no 'rleu'; did you mean 'relu'? there are elu, relu, silu");
  CHECK(error_of([&] { things.at("attention"); }) == "thing: no 'attention'; there are elu, relu, silu");
  CHECK(error_of([&] { things.add({"relu", 9}); }) == "thing: 'relu' is registered twice");
  CHECK(error_of([&] { things.add({"swish", 9}); }) == "thing: 'swish' is registered twice");
  CHECK(error_of([&] { things.add({"other", 9}, {"elu"}); }) == "thing: 'elu' is registered twice");
  CHECK(error_of([&] { things.add({"", 9}); }) == "thing: an entry without a name");
  CHECK(things.size() == 3);
  const Registry<Thing> none("thing");
  CHECK(error_of([&] { none.at("x"); }) == "thing: no 'x'; there are none");
}

TEST_CASE("nearest") {
  const std::vector<std::string> words = {"gelu", "gelu_tanh", "layers", "rate"};
  CHECK(nearest("layres", words) == "layers");
  CHECK(nearest("gelutanh", words) == "gelu_tanh");
  CHECK(nearest("lay", words) == "layers");
  CHECK(nearest("geul", words) == "gelu");
  CHECK(nearest("momentum", words).empty());
  CHECK(nearest("", words).empty());
  CHECK(nearest("x", {}).empty());
}

TEST_CASE("specs survive printing and reading") {
  for (const char* const written :
       {"relu", "0.5", "elu(0.5)", "softmax(qk_norm=layer, soft_cap=30)",
        "pointwise(relu, alpha=learned(1), span=adaptive_span(1024, R=32), attend_to_self=no)", "gpt-char-small",
        "f(g(h(1)), -1e-3, k=+2)"}) {
    const Spec spec = parse_spec(written);
    CHECK(print(spec) == written);
    CHECK(parse_spec(print(spec)) == spec);
  }
  const Spec spec = parse_spec("  softmax ( 1 ,\n span = fixed( 2 ) )  ");
  CHECK(print(spec) == "softmax(1, span=fixed(2))");
  CHECK(spec.items[0].key.empty());
  CHECK(spec.items[1].key == "span");
  CHECK(spec.items[1].value.items[0].value.name == "2");
  CHECK(text(spec) == "softmax(1, span=fixed(2))");
  CHECK_FALSE(parse_spec("elu(1)") == parse_spec("elu(2)"));
}

TEST_CASE("a broken spec names the position") {
  const auto error = [](const char* text) { return error_of([&] { parse_spec(text); }); };
  CHECK(error("") == "spec: '' ends where a name or a number should stand");
  CHECK(error("elu(0.5") == "spec: 'elu(0.5' ends where ',' or ')' should stand");
  CHECK(error("elu()") == "spec: 'elu()' has ')' at position 5 where a name or a number should stand");
  CHECK(error("elu(1 2)") == "spec: 'elu(1 2)' has '2' at position 7 where ',' or ')' should stand");
  CHECK(error("elu(1))") == "spec: 'elu(1))' has ')' at position 7 where the end should stand");
  CHECK(error("elu(a=)") == "spec: 'elu(a=)' has ')' at position 7 where a name or a number should stand");
  CHECK(error("elu(a=1, 2)") ==
        "spec: 'elu(a=1, 2)': '2' at position 10 has no name but follows a named one; positional items come first");
  CHECK(error("elu(a=1, a=2)") == "spec: 'elu(a=1, a=2)': 'a' is given again at position 10");
  CHECK(error("elu(f(1)=2)") == "spec: 'elu(f(1)=2)' has '=' at position 9 where ',' or ')' should stand");
  CHECK(error(std::string(100000, '(').insert(0, "f").c_str()).find("ends where") == std::string::npos);
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "f(";
  CHECK(error(deep.c_str()) == "spec: '" + deep + "' has more than 32 parentheses inside one another");
}

TEST_CASE("every kind of setting is set from text") {
  CHECK(with("batch", "64").batch == 64);
  CHECK(with("batch", " 1e3 ").batch == 1000);
  CHECK(with("rate", "6e-4").rate == 6e-4);
  CHECK(with("bias", "yes").bias);
  CHECK(with("bias", "true").bias);
  CHECK_FALSE(with("bias", "no").bias);
  CHECK(with("out", "a folder (new), or = so").out == "a folder (new), or = so");
  CHECK(with("device", "cuda").device == "cuda");
  CHECK(print(with("attention", "softmax(dropout=0.1)").attention) == "softmax(dropout=0.1)");
  CHECK(with("alpha", "0.25").alpha == LearnableNumber{0.25, false});
  CHECK(with("alpha", "learned").alpha == LearnableNumber{1, true});
  CHECK(with("alpha", "learned(0.5)").alpha == LearnableNumber{0.5, true});
  CHECK(with("betas", "0.5, 0.75").betas == std::vector<double>{0.5, 0.75});
  CHECK(with("betas", "list(0.5, 0.75)").betas == std::vector<double>{0.5, 0.75});
  CHECK(with("betas", "").betas.empty());
  CHECK(with("loss.weight", "2").loss.weight == 2);
}

TEST_CASE("a whole number may have an exponent and a point, up to 2^63, and is exactly what is written") {
  const auto number = [](const char* text) { return parse_whole_number("seed", text); };
  CHECK(number("1e6") == 1'000'000);
  CHECK(number("9e18") == 9'000'000'000'000'000'000);
  CHECK(number("-9E+18") == -9'000'000'000'000'000'000);
  CHECK(number("9.223372036854775807e18") == INT64_MAX);
  CHECK(number("9007199254740993.0") == 9'007'199'254'740'993);  // no double
  CHECK(number("+1.5e3") == 1500);
  CHECK(number("12000e-3") == 12);
  CHECK(number("0.0") == 0);
  CHECK(number("5.") == 5);
  for (const char* wrong : {"9.3e18", "1e19", "1e300", "1.5", "1.25e1", "15e-1", "9007199254740992.5", "e3", ".", "1e",
                            "1e+-3", "1.2.3", "++1", "+-1", "inf", "0x10", "1e99999999999999999999"}) {
    CAPTURE(wrong);
    expect_error([&] { number(wrong); }).names("seed").value(wrong);
  }
}

TEST_CASE("a wrong value is an error and changes nothing") {
  CHECK(set_error("batch", "abc") == "train: batch: 'abc' is not a whole number");
  CHECK(set_error("batch", "1.5") == "train: batch: '1.5' is not a whole number");
  CHECK(set_error("batch", "") == "train: batch: '' is not a whole number");
  CHECK(set_error("batch", "12x") == "train: batch: '12x' is not a whole number");
  CHECK(set_error("batch", "1e300") == "train: batch: '1e300' is not a whole number");
  CHECK(set_error("batch", "99999999999999999999") == "train: batch: 99999999999999999999 is too large");
  CHECK(set_error("batch", "0") == "train: batch: 0 must be at least 1");
  CHECK(set_error("rate", "0") == "train: rate: 0 must be above 0");
  CHECK(set_error("rate", "fast") == "train: rate: 'fast' is not a number");
  CHECK(set_error("rate", "nan") == "train: rate: 'nan' is not a number");
  CHECK(set_error("rate", "inf") == "train: rate: inf is not a finite number");
  CHECK(set_error("dropout", "1") == "train: dropout: 1 must be below 1");
  CHECK(set_error("dropout", "-0.5") == "train: dropout: -0.5 must be at least 0");
  CHECK(set_error("bias", "maybe") == "train: bias: 'maybe' is neither yes nor no");
  CHECK(set_error("device", "metal") == "train: device: no 'metal'; there are cpu, cuda");
  CHECK(set_error("device", "cud") == "train: device: no 'cud'; did you mean 'cuda'? there are cpu, cuda");
  CHECK(set_error("attention", "softmax(") ==
        "train: attention: spec: 'softmax(' ends where a name or a number should stand");
  CHECK(set_error("alpha", "3") == "train: alpha: 3 must be at most 2");
  CHECK(set_error("alpha", "learned(x)") == "train: alpha: 'x' is not a number");
  CHECK(set_error("alpha", "fixed") == "train: alpha: 'fixed' is neither a number nor learned nor learned(a number)");
  CHECK(set_error("betas", "1,") == "train: betas: '1,' ends with a comma");
  CHECK(set_error("betas", "1,x") == "train: betas: 'x' is not a number");
  Everything e;
  CHECK_THROWS_AS(set_setting(e, "train", "batch", "0"), Error);
  CHECK(e.batch == 12);
}

TEST_CASE("an unknown key names the nearest") {
  CHECK(set_error("bach", "1") == "train: unknown key 'bach'; did you mean 'batch'?");
  CHECK(set_error("eval_iters", "1") == "train: unknown key 'eval_iters'; all is evaluated");
  CHECK(set_error("loss.amount", "1") == "train: unknown key 'loss.amount'; there are loss.weight");
  CHECK(set_error("loss.wight", "1") == "train: unknown key 'loss.wight'; did you mean 'loss.weight'?");
  CHECK(set_error("weight", "1") == "train: unknown key 'weight'; did you mean 'loss.weight'?");
  CHECK(set_error("quux", "1") ==
        "train: unknown key 'quux'; there are batch, rate, dropout, bias, out, device, attention, alpha, betas, "
        "loss.weight");
  CHECK(set_error("batch.size", "1") ==
        "train: unknown key 'batch.size'; there are batch, rate, dropout, bias, out, "
        "device, attention, alpha, betas, loss.weight");
}

TEST_CASE("aliases and keys of other programs set what they stand for, under whose key errors speak") {
  for (const char* const key : {"rate", "speed", "pace", "lr"}) {
    CHECK(with(key, "0.5").rate == 0.5);
    CHECK(set_error(key, "0") == "train: rate: 0 must be above 0");
  }
  CHECK(print(with("p", "0.1").attention) == "softmax(dropout=0.1)");
  Everything e;
  const std::vector<Setting> settings = settings_of(e);
  CHECK(find_setting(settings, "pace") == find_setting(settings, "rate"));
  CHECK(find_setting(settings, "lr") == nullptr);
  CHECK(find_setting(settings, "") == nullptr);
  CHECK(print(without_aliases(parse_spec("thing(3, pace=1, bias=yes, other=2, speed=f(2))"), settings)) ==
        "thing(3, bias=yes, other=2, rate=f(2))");
}

TEST_CASE("a setting without a key is read by its alias alone") {
  Everything e = with("epochs", "3");
  CHECK(e.batches == 3);
  CHECK(set_error("epochs", "0") == "train: epochs: 0 must be at least 1");
  CHECK(set_error("", "0").starts_with("train: unknown key ''"));
  for (const auto& [key, value] : list_settings(e)) CHECK(!key.empty());
  CHECK(print(make_spec("thing", e)).find("epochs") == std::string::npos);
}

TEST_CASE("a dotted key changes one item of a spec") {
  Everything e;
  set_setting(e, "train", "attention.dropout", "0.1");
  set_setting(e, "train", "attention.span", "adaptive_span(1024)");
  set_setting(e, "train", "attention.span.R", "32");
  set_setting(e, "train", "attention.dropout", "0.2");
  CHECK(print(e.attention) == "softmax(dropout=0.2, span=adaptive_span(1024, R=32))");
  CHECK(set_error("attention.span.R", "32") ==
        "spec: 'span.R' changes a part of 'span', which 'softmax' does not set; set 'span' first");
  CHECK(set_error("attention.span", ")") ==
        "train: attention.span: spec: ')' has ')' at position 1 where a name or a number should stand");
}

TEST_CASE("a spec's items are read into settings") {
  Everything e;
  read_settings(parse_spec("thing(3, rate=0.5, attention=linear(elu(1)), alpha=learned)"), e);
  CHECK(e.batch == 3);
  CHECK(e.rate == 0.5);
  CHECK(print(e.attention) == "linear(elu(1))");
  CHECK(e.alpha.learned);
  read_settings(parse_spec("thing(3, batch=4)"), e);  // the later one wins
  CHECK(e.batch == 4);
  Loss loss;
  const auto error = [&](const char* text) { return error_of([&] { read_settings(parse_spec(text), loss); }); };
  CHECK(error("aux(wieght=1)") == "aux: unknown key 'wieght'; did you mean 'weight'?");
  CHECK(error("aux(1, 2)") == "aux: takes at most 1, not '2'; there are weight");
  CHECK(error("aux(big)") == "aux: weight: 'big' is not a number");
  Nothing nothing;
  CHECK(error_of([&] { read_settings(parse_spec("relu(1)"), nothing); }) == "relu: takes no settings, not '1'");
  CHECK(error_of([&] { read_settings(parse_spec("relu(a=1)"), nothing); }) == "relu: unknown key 'a'; it takes none");
}

TEST_CASE("settings survive printing and reading") {
  Everything e;
  e.batch = -7;
  e.rate = 0.1 + 0.2;
  e.bias = true;
  e.attention = parse_spec("softmax(1, soft_cap=30)");
  e.alpha = {0.3, true};
  e.betas = {};
  e.loss.weight = 1e-300;
  Everything listed;
  listed.batch = 1;
  const auto all = list_settings(e);
  CHECK(all.front() == std::pair<std::string, std::string>("batch", "-7"));
  CHECK(all[1].second == "0.30000000000000004");
  CHECK(all.back().first == "loss.weight");
  CHECK(set_error("batch", all[0].second.c_str()) == "train: batch: -7 must be at least 1");
  e.batch = 7;
  for (const auto& [key, value] : list_settings(e)) set_setting(listed, "train", key, value);
  CHECK(list_settings(listed) == list_settings(e));

  Everything read;
  const Spec spec = make_spec("thing", e);
  read_settings(parse_spec(print(spec)), read);
  CHECK(list_settings(read) == list_settings(e));
}

TEST_CASE("numbers are printed short and read back exactly") {
  const std::pair<double, const char*> numbers[] = {{1, "1"},
                                                    {-0.5, "-0.5"},
                                                    {1e-4, "1e-4"},
                                                    {6e-4, "6e-4"},
                                                    {0.001, "0.001"},
                                                    {1e20, "1e20"},
                                                    {-1e-300, "-1e-300"},
                                                    {1.5e10, "1.5e10"},
                                                    {0, "0"},
                                                    {std::numeric_limits<double>::infinity(), "inf"}};
  for (const auto& [x, written] : numbers) {
    CHECK(print_number(x) == written);
    CHECK(parse_number("x", written) == x);
  }
  for (const double x : {1.0 / 3, 0.1 + 0.2, 5e-324, 1.7976931348623157e308, 123456789.123})
    CHECK(parse_number("x", print_number(x)) == x);
}

TEST_CASE("assignments") {
  CHECK(split_assignment("train", "out = a=b") == std::pair<std::string, std::string>("out", "a=b"));
  CHECK(split_assignment("train", "out=") == std::pair<std::string, std::string>("out", ""));
  CHECK(error_of([] { split_assignment("train", "out"); }) == "train: 'out' is not of the form key=value");
  CHECK(error_of([] { split_assignment("train", "=1"); }) == "train: '=1' is not of the form key=value");
}

}  // namespace
}  // namespace orrery
