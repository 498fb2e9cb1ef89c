#include "engine/settings/config.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "engine/settings/registry.h"
#include "tests/support/message.h"

namespace orrery {
namespace {

using testing::expect_error;
using testing::Message;

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

Message set_error(const char* key, const char* value) {
  return expect_error([&] {
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
  const auto unknown = [&](const char* name) {
    return expect_error([&] { things.at(name); }).names("thing").value(name);
  };
  unknown("swosh").offers("'swish' (silu)").offers("elu, relu, silu");
  unknown("rleu").offers("'relu'").offers("elu, relu, silu");
  unknown("attention").offers("elu, relu, silu");
  expect_error([&] { things.add({"relu", 9}); }).names("thing").value("relu").names("twice");
  expect_error([&] { things.add({"swish", 9}); }).names("thing").value("swish").names("twice");
  expect_error([&] { things.add({"other", 9}, {"elu"}); }).names("thing").value("elu").names("twice");
  expect_error([&] { things.add({"", 9}); }).names("thing").names("entry").names("name");
  CHECK(things.size() == 3);
  const Registry<Thing> none("thing");
  expect_error([&] { none.at("x"); }).names("thing").value("x").offers("none");
}

TEST_CASE("nearest") {
  const std::vector<std::string> words = {"gelu", "gelu_tanh", "layers", "rate"};
  CHECK(nearest("layres", words) == "layers");
  CHECK(nearest("gelutanh", words) == "gelu_tanh");
  CHECK(nearest("lay", words) == "layers");
  CHECK(nearest("geul", words) == "gelu");
  CHECK(nearest("momentum", words).empty());
  CHECK(nearest("GELU", words) == "gelu");
  CHECK(nearest("rate_of_the_decay", words) == "rate");             // begins with it
  CHECK(nearest("gelu_tanh_approximation", words) == "gelu_tanh");  // the longest
  CHECK(nearest("", words).empty());
  CHECK(nearest("x", {}).empty());
}

TEST_CASE("a setting has the section that it is declared in; unmarked settings are common if none is marked") {
  struct Inner {
    int64_t a = 1, b = 2;
    void visit(detail::SettingCollector& v) {
      v.common("a", a);
      v("b", b);
    }
  };
  struct Outer {
    int64_t x = 3, y = 4;
    Inner inner;
    void visit(detail::SettingCollector& v) {
      v.section("first");
      v("x", x);
      v.include(settings_of(inner));
      v.section("second");
      v("y", y);
    }
  } outer;
  const std::vector<Setting> settings = settings_of(outer);
  const auto state = [&](const char* key) {
    const Setting& setting = *find_setting(settings, key);
    return setting.section + (setting.common ? ", common" : "");
  };
  CHECK(state("x") == "first, common");
  CHECK(state("a") == "first, common");
  CHECK(state("b") == "first");
  CHECK(state("y") == "second, common");
}

TEST_CASE("a printed spec parses back as an equal spec") {
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

TEST_CASE("the error for an invalid spec names the position") {
  const auto error = [](const std::string& text) { return expect_error([&] { parse_spec(text); }).names("spec"); };
  error("").value("''").names("ends").offers("name").offers("number");
  error("elu(0.5").value("elu(0.5").names("ends").offers("','").offers("')'");
  const char* const wrong[][4] = {{"elu()", "')'", "position 5", "name or a number"},
                                  {"elu(1 2)", "'2'", "position 7", "',' or ')'"},
                                  {"elu(1))", "')'", "position 7", "end"},
                                  {"elu(a=)", "')'", "position 7", "name or a number"},
                                  {"elu(a=1, 2)", "'2'", "position 10", "positional items"},
                                  {"elu(f(1)=2)", "'='", "position 9", "',' or ')'"}};
  for (const auto& [text, found, position, offered] : wrong)
    error(text).value(text).value(found).names(position).offers(offered);
  error("elu(a=1, a=2)").value("elu(a=1, a=2)").value("'a'").names("again").names("position 10");
  error("f" + std::string(100000, '(')).value("100001 characters").offers(65536);
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "f(";
  error(deep).value("'" + deep + "'").offers(32).names("parentheses");
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

TEST_CASE("an integer may have an exponent and a point, up to 2^63, and is parsed exactly") {
  const auto number = [](const char* text) { return parse_whole_number("seed", text); };
  CHECK(number("1e6") == 1'000'000);
  CHECK(number("9e18") == 9'000'000'000'000'000'000);
  CHECK(number("-9E+18") == -9'000'000'000'000'000'000);
  CHECK(number("9.223372036854775807e18") == INT64_MAX);
  CHECK(number("9007199254740993.0") == 9'007'199'254'740'993);  // not representable as f64
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
  const char* const wrong[][4] = {{"batch", "abc", "'abc'", "whole number"},
                                  {"batch", "1.5", "'1.5'", "whole number"},
                                  {"batch", "", "''", "whole number"},
                                  {"batch", "12x", "'12x'", "whole number"},
                                  {"batch", "1e300", "'1e300'", "whole number"},
                                  {"batch", "99999999999999999999", "99999999999999999999", "2^63"},
                                  {"batch", "0", "0", "at least 1"},
                                  {"rate", "0", "0", "above 0"},
                                  {"rate", "fast", "'fast'", "number"},
                                  {"rate", "nan", "'nan'", "number"},
                                  {"rate", "inf", "inf", "finite number"},
                                  {"dropout", "1", "1", "below 1"},
                                  {"dropout", "-0.5", "-0.5", "at least 0"},
                                  {"device", "metal", "'metal'", "cpu, cuda"},
                                  {"attention", "softmax(", "spec: 'softmax('", "name or a number"},
                                  {"alpha", "3", "3", "at most 2"},
                                  {"alpha", "learned(x)", "'x'", "number"},
                                  {"alpha", "fixed", "'fixed'", "learned(NUMBER)"},
                                  {"betas", "1,", "'1,'", "comma"},
                                  {"betas", "1,x", "'x'", "number"}};
  for (const auto& [key, value, shown, offered] : wrong)
    set_error(key, value).names("train").names(key).value(shown).offers(offered);
  set_error("bias", "maybe").names("train").names("bias").value("'maybe'").offers("yes").offers("no");
  set_error("device", "cud").names("train").names("device").value("'cud'").offers("'cuda'").offers("cpu, cuda");
  Everything e;
  expect_error([&] { set_setting(e, "train", "batch", "0"); }).names("batch").value(0);
  CHECK(e.batch == 12);
}

TEST_CASE("the error for an unknown setting names the nearest setting") {
  const char* const all = "batch, rate, dropout, bias, out, device, attention, alpha, betas, loss.weight";
  const char* const unknown[][2] = {{"bach", "'batch'"},
                                    {"eval_iters", "all is evaluated"},
                                    {"loss.amount", "loss.weight"},
                                    {"loss.wight", "'loss.weight'"},
                                    {"weight", "'loss.weight'"},
                                    {"quux", all},
                                    {"batch.size", "'batch'"}};
  for (const auto& [key, offered] : unknown) set_error(key, "1").names("train").value(key).offers(offered);
}

TEST_CASE("aliases and names of other programs set their settings; errors show the alias as it was typed") {
  for (const char* const key : {"rate", "speed", "pace", "lr"}) {
    CHECK(with(key, "0.5").rate == 0.5);
    set_error(key, "0").names("train").names(std::string(key) == "lr" ? "rate" : key).value(0).offers("above 0");
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

TEST_CASE("a setting without a name is set by its alias alone") {
  Everything e = with("epochs", "3");
  CHECK(e.batches == 3);
  set_error("epochs", "0").names("train").names("epochs").value(0).offers("at least 1");
  set_error("", "0").names("train").names("setting").value("''");
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
  set_error("attention.span.R", "32").names("span.R").names("'span'").value("softmax").offers("'span'");
  set_error("attention.span", ")").names("attention.span").value("')'").names("position 1").offers("name or a number");
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
  const auto error = [&](const char* text) { return expect_error([&] { read_settings(parse_spec(text), loss); }); };
  error("aux(wieght=1)").names("aux").value("wieght").offers("'weight'");
  error("aux(1, 2)").names("aux").offers("at most 1").value("'2'").offers("weight");
  error("aux(big)").names("aux").names("weight").value("big").offers("number");
  Nothing nothing;
  expect_error([&] { read_settings(parse_spec("relu(1)"), nothing); }).names("relu").offers("no settings").value(1);
  expect_error([&] { read_settings(parse_spec("relu(a=1)"), nothing); }).names("relu").value("'a'").offers("none");
}

TEST_CASE("printed settings parse back as equal settings") {
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
  set_error("batch", all[0].second.c_str()).names("train").names("batch").value(-7).offers("at least 1");
  e.batch = 7;
  for (const auto& [key, value] : list_settings(e)) set_setting(listed, "train", key, value);
  CHECK(list_settings(listed) == list_settings(e));

  Everything read;
  const Spec spec = make_spec("thing", e);
  read_settings(parse_spec(print(spec)), read);
  CHECK(list_settings(read) == list_settings(e));
}

TEST_CASE("numbers are printed in short form and parse back exactly") {
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
  for (const char* wrong : {"out", "=1"})
    expect_error([&] { split_assignment("train", wrong); }).names("train").value(wrong).offers("key=value");
}

struct Renamed {
  std::string place = "before";
  Spec start = parse_spec("normal"), groups = parse_spec("none");
  template <class V>
  void visit(V& v) {
    v("place", place, "", one_of({"before|pre", "after|post|behind"}));
    v("start", start, "", with_aliases({"normal|equal", "inverse_width|by_width"}));
    v("groups", groups, "", one_of({"none|equal", "groups|by_group"}));
  }
};

TEST_CASE("a value may have aliases, which are accepted inside specs too, and never written") {
  Renamed r;
  const auto set = [&](const char* key, const char* value) { set_setting(r, "train", key, value); };
  for (const char* const word : {"after", "post", "behind"}) {
    r.place = "before";
    set("place", word);
    CHECK(r.place == "after");
  }
  set("start", "equal(by_width)");
  CHECK(print(r.start) == "normal(inverse_width)");
  set("start", "0.5");
  CHECK(print(r.start) == "0.5");
  set("groups", "by_group(equal=2)");  // the keys of items have no aliases
  CHECK(print(r.groups) == "groups(equal=2)");
  expect_error([&] { set("place", "between"); }).names("place").value("'between'").offers("before, after");
  const std::vector<Setting> settings = settings_of(r);
  CHECK(print(without_aliases(parse_spec("thing(pre, start=equal(1), groups=equal)"), settings)) ==
        "thing(before, start=normal(1), groups=none)");
}

}  // namespace
}  // namespace orrery
