// orrery try and --plugin for users with one formula file.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/examples/activation_source.h"
#include "tests/examples/program.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using orrery::testing::expect_error;
using orrery::testing::Message;

namespace {

// A normalization by the mean absolute value, with a derivative by hand.
const char* const normalization = R"(#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/normalizations/base/normalization.h"

namespace orrery::nn {
namespace {

struct Divide {  // y = x / m, m = mean |x| + epsilon:  dx = dy / m - sign(x) sum(dy x) / (C m^2)
  static constexpr const char* name = "divide_by_mean_absolute";
  double epsilon;
  Tensor forward(Saved& saved, const Tensor& x) const {
    const Tensor m = mean(abs(x), {-1}, true) + epsilon;
    saved.save(x, m);
    return x / m;
  }
  Gradients<1> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &x = saved[0], &m = saved[1], sign = heaviside(x) - heaviside(-x);
    return {dy / m - sign * mean(dy * x, {-1}, true) / (m * m)};
  }
};

class MeanAbsolute final : public Module {
 public:
  struct Settings {
    double epsilon = 1e-5;
    template <class V>
    void visit(V& v) {
      v("epsilon", epsilon, "added to the mean", above(0));
    }
  };
  static inline const Info info{.name = "mean_absolute",
                                .formula = "x / (mean |x| + epsilon) * weight",
                                .source = "a test",
                                .parameters = "weight 1",
                                .saves = "x, mean of each row"};
  MeanAbsolute(const Spec& spec, const NormalizationOptions& options)
      : epsilon_(settings_from<Settings>(spec).epsilon), weight_(Shape{options.width}, constant(1)) {}
  Tensor forward(const Tensor& x, ForwardPass&) override { return record(Divide{epsilon_}, x) * weight_.value; }
  void visit(Visitor& v) override { v("weight", weight_); }

 private:
  double epsilon_;
  Parameter weight_;
};
REGISTER_NORMALIZATION(MeanAbsolute);

GradientCase gradient_case(const CaseTensors& random) {
  return {{{"x", random({5, 7})}},
          [](const auto& in) { return record(Divide{0.1}, in[0]); },
          [](const auto& in) { return in[0] * reciprocal(mean(abs(in[0]), {-1}, true) + 0.1); }};
}
REGISTER_GRADIENT_CASE("normalization", "mean_absolute", gradient_case);

}  // namespace
}  // namespace orrery::nn
)";

}  // namespace

TEST_CASE("try: a formula file is compiled, shown, checked, plotted and trained with in its three roles") {
  const Folder folder;
  const std::string file = folder.write("bump.cpp", activation("bump", right_derivative));
  const Outcome tried = run_orrery({"try", file, "--out=" + (folder / "plugins"), "--steps=30"});
  INFO(tried.out, tried.err);
  CHECK(tried.code == 0);
  for (const char* expected :
       {"x / (1 + x^2)", "activation bump", "passed", "derivative", "gelu, softmax, layer",
        "feed_forward = dense(bump)", "attention = pointwise(bump)", "normalization = dynamic(bump)", "--plugin="})
    CHECK(contains(tried.out, expected));

  const std::string plugin = folder / "plugins/bump.so";
  REQUIRE(fs::exists(plugin));
  CHECK(contains(run_orrery({"list", "bump", "--plugin=" + plugin}).out, "x / (1 + x^2)"));
  CHECK(run_orrery({"--plugin", plugin, "gradcheck", "bump"}).code == 0);
  expect_error(run_orrery({"list", "bump"})).names("list").value("bump");

  // With the plug-in every command accepts the name: a model trains with it and generates.
  const std::vector<std::string> train =
      std::vector<std::string>{"train", "--data=" + folder.write("t", tiny_text()), "--feed_forward=dense(bump)"} +
      tiny;
  const std::string run = folder / "run";
  const Outcome trained = run_orrery(train + std::vector<std::string>{"--out=" + run, "--plugin=" + plugin});
  INFO(trained.out, trained.err);
  CHECK(trained.code == 0);
  CHECK(fs::exists(run + "/step_000004/weights.safetensors"));
  const std::vector<std::string> generate = {"generate", "--checkpoint=" + run, "--prompt=a", "--tokens=5"};
  const Outcome written = run_orrery(generate + std::vector<std::string>{"--plugin=" + plugin});
  CHECK(written.code == 0);
  CHECK(written.out.size() >= 7);  // the prompt, five characters, a line break
  for (const Outcome& other :
       {run_orrery(train + std::vector<std::string>{"--out=" + (folder / "other")}), run_orrery(generate)})
    expect_error(other).value("bump");

  // A second copy of the plug-in: its name is already registered.
  fs::copy_file(plugin, folder / "again.so");
  fs::copy_file(plugin + ".sha256", folder / "again.so.sha256");
  const Outcome twice = run_orrery({"list", "--plugin=" + plugin, "--plugin=" + (folder / "again.so")});
  expect_error(twice).names(folder / "again.so").names("activation").value("bump");

  // A plug-in for other headers.
  std::string bytes = read_file(plugin);
  const size_t mark = bytes.find("orrery plug-in for ");
  REQUIRE(mark != std::string::npos);
  bytes[bytes.find(' ', mark + 19) + 1] ^= 1;
  const Outcome old = run_orrery({"list", "--plugin=" + folder.write("old.so", bytes)});
  expect_error(old).names(folder / "old.so").value("0.1.0").value("0.1.0").offers("orrery try");
}

TEST_CASE("try: a wrong derivative gives exit code 1, and the name of the check is printed") {
  const Folder folder;
  const std::string file = folder.write("wrong.cpp", activation("wrong_bump", "(1 + x * x) / (d * d)"));
  const Outcome tried = run_orrery({"try", file, "--out=" + (folder / "plugins"), "--steps=0"});
  CHECK(tried.code == 1);
  Message(last_line(tried.out)).names("FAILED").names("gradcheck").value("wrong_bump");
}

TEST_CASE("try: a wrong property gives exit code 1 and is named, even if every derivative is right") {
  const Folder folder;
  std::string text = activation("false_bump", right_derivative);
  text.replace(text.find(".limits"), 7, ".zero_below_zero = true, .limits");
  const Outcome tried = run_orrery({"try", folder.write("f.cpp", text), "--out=" + (folder / "plugins"), "--steps=0"});
  CHECK(tried.code == 1);
  Message(tried.out).names("false_bump").names("zero_below_zero").value("F(x) = 0 for x <= 0").value("F(-1) = -0.5");
  Message(last_line(tried.out)).names("FAILED").names("gradcheck").value("false_bump");
}

TEST_CASE("try: a failed training gives exit code 1 and is named, even if every derivative is right") {
  const Folder folder;
  // x in f64, which gradcheck uses; in f32, which models use, 10^60 is infinite and this is NaN.
  std::string narrow = activation("narrow", "d / d");
  const std::string formula = "return x / (1 + x * x)";
  narrow.replace(narrow.find(formula), formula.size(), "const T b = T(1e30); return x * b * b / (b * b)");
  const std::string limits = "{0, 0}", infinity = "orrery::nn::ActivationInfo::infinity";
  narrow.replace(narrow.find(limits), limits.size(), "{-" + infinity + ", " + infinity + "}");
  const Outcome tried =
      run_orrery({"try", folder.write("narrow.cpp", narrow), "--out=" + (folder / "plugins"), "--steps=12"});
  INFO(tried.out, tried.err);
  CHECK(tried.code == 1);
  Message(tried.out).names("activation narrow").value("passed").names("dual numbers");
  CHECK(contains(tried.out, "dense(narrow)  FAILED"));
  CHECK(!contains(tried.out, "gelu, softmax, layer, adamw, constant  FAILED"));
  const std::string last = last_line(tried.out);
  CHECK(!contains(last, "gradcheck"));
  Message(last)
      .names("FAILED")
      .names("feed_forward = dense(narrow)")
      .names("attention = pointwise(narrow)")
      .names("normalization = dynamic(narrow)");
}

TEST_CASE("try: a normalization in one file passes and trains a model") {
  const Folder folder;
  const std::string file = folder.write("mean_absolute.cpp", normalization);
  const Outcome tried = run_orrery({"try", file, "--out=" + (folder / "p"), "--steps=12"});
  INFO(tried.out, tried.err);
  CHECK(tried.code == 0);
  for (const char* expected :
       {"x / (mean |x| + epsilon) * weight", "parameters: weight 1; saved for backward: x, mean of each row",
        "normalization mean_absolute: passed", "normalization = mean_absolute", "--plugin="})
    CHECK_MESSAGE(contains(tried.out, expected), expected);
  CHECK(!contains(tried.out, "FAILED"));
  const Outcome trained =
      run_orrery(std::vector<std::string>{"train", "--data=" + folder.write("t", tiny_text()),
                                          "--out=" + (folder / "run"), "--normalization=mean_absolute(epsilon=0.01)",
                                          "--plugin=" + (folder / "p/mean_absolute.so")} +
                 tiny);
  INFO(trained.err);
  CHECK(trained.code == 0);
}

TEST_CASE("try: a file that does not compile is refused with the compiler's first error") {
  const Folder folder;
  const std::string file = folder.write("broken.cpp", activation("broken", "no_such_name"));
  const Outcome tried = run_orrery({"try", file, "--out=" + (folder / "plugins")});
  expect_error(tried).names("try").names(file).value("no_such_name");
  CHECK(!fs::exists(folder / "plugins/broken.so"));
}

TEST_CASE("try: a file that registers nothing, a name that is taken and a missing file are refused") {
  const Folder folder;
  const auto refusal = [&](const std::string& file) {
    return expect_error(run_orrery({"try", file, "--out=" + (folder / "plugins"), "--steps=0"}));
  };
  const std::string nothing = folder.write("nothing.cpp", "int x;\n"), absent = folder / "absent.cpp";
  refusal(nothing).names("try").names(nothing).offers("REGISTER_ACTIVATION");
  const std::string taken = folder.write("taken.cpp", activation("relu", right_derivative));
  refusal(taken).names(folder / "plugins/taken.so").names("activation").value("relu");
  refusal(absent).names("try").names(absent).offers("orrery try examples/03_new_activation.cpp");
  const std::string no_file = folder / "absent.so", no_plugin = folder.write("text.so", "hello");
  expect_error(run_orrery({"list", "--plugin=" + no_file})).names("plugin").names(no_file).offers("orrery try");
  expect_error(run_orrery({"list", "--plugin=" + no_plugin}))
      .names("plugin")
      .names(no_plugin)
      .value("plug-in")
      .offers("orrery try");
}

TEST_CASE("try: standard library calls in GPU code and gradient cases of unregistered names are reported") {
  const Folder folder;
  const std::string source = ORRERY_SOURCE_DIR;
  const auto outcome_of = [&](const std::string& file, const std::string& good, const std::string& bad) {
    std::string text = read_file(source + "/" + file);
    const size_t at = text.find(good);
    REQUIRE(at != std::string::npos);
    text.replace(at, good.size(), bad);
    return run_orrery({"try", folder.write("mistaken.cpp", text), "--out=" + (folder / "plugins"), "--steps=0"});
  };
  const Outcome standard = outcome_of("tests/examples/plugins/scale_norm.cpp", "scalar::sqrt(row", "std::sqrt(row");
  CHECK(standard.code == 1);
  Message(standard.out).names("line 21").value("std::sqrt").offers("scalar::sqrt");
  const Outcome missing = outcome_of("tests/examples/plugins/extra_loss.cpp", "REGISTER_LOSS(output_power);",
                                     "[[maybe_unused]] const LossInfo* unused = &output_power;");
  CHECK(missing.code == 1);
  Message(missing.out).names("loss output_power").value("FAILED").value("gradient case");
  Message(last_line(missing.out)).names("FAILED").names("registration").value("output_power");
  const Outcome commented = outcome_of("tests/examples/plugins/scale_norm.cpp", "const auto in = row.preload(x);",
                                       "const auto in = row.preload(x);  // not std::sqrt(x)");
  CHECK(commented.code == 0);
}

TEST_CASE("try: short files define a normalization and row-wise weightings of attention, and pass") {
  struct Written {
    std::string file;
    int lines;  // at most
    std::vector<std::string> parts;
    std::string setting;  // of a model that trains with it
  };
  const std::vector<Written> files = {
      {"examples/softmax_off_by_one.cpp",
       45,
       {"attention = softmax_off_by_one", "softmax_off_by_one(dropout=0.3), dropping, cross"},
       "attention=softmax_off_by_one(gate=silu)"},
      {"tests/examples/plugins/top_k.cpp",
       55,
       {"attention = top_k", "top_k(k=1), causal", "top_k(k=3), cross"},
       "attention=top_k(k=2)"},
      {"tests/examples/plugins/scale_norm.cpp",
       85,
       {"normalization scale_norm: passed", "normalization = scale_norm"},
       "normalization=scale_norm(g=2, epsilon=0.01)"}};
  for (const Written& one : files) {
    INFO(one.file);
    const Folder folder;
    const std::string path = std::string(ORRERY_SOURCE_DIR) + "/" + one.file, text = read_file(path);
    CHECK(std::count(text.begin(), text.end(), '\n') <= one.lines);
    const Outcome tried = run_orrery({"try", path, "--out=" + folder.path(), "--steps=10"});
    INFO(tried.out, tried.err);
    CHECK(tried.code == 0);
    for (const std::string& expected : one.parts) CHECK_MESSAGE(contains(tried.out, expected), expected);
    CHECK(!contains(tried.out, "FAILED"));
    const std::string plugin = folder / std::filesystem::path(one.file).stem().string() + ".so";
    const Outcome trained =
        run_orrery(std::vector<std::string>{"train", "--data=" + folder.write("t", tiny_text()),
                                            "--out=" + (folder / "run"), "--" + one.setting, "--plugin=" + plugin} +
                   tiny);
    INFO(trained.err);
    CHECK(trained.code == 0);
  }
}

TEST_CASE("try: a schedule and an optimizer are trained with; other components come with a command that uses them") {
  const Folder folder;
  const auto tried = [&](const std::string& file, const std::string& steps) {
    const Outcome outcome = run_orrery({"try", ORRERY_SOURCE_DIR "/tests/" + file + ".cpp", "--out=" + (folder / "p"),
                                        "--steps=" + steps});
    INFO(outcome.out, outcome.err);
    CHECK(outcome.code == 0);
    return outcome.out;
  };
  for (const char* family : {"schedule", "optimizer"}) {
    const std::string family_name = family, name = "dropped_" + family_name,
                      out = tried("dropped/nn/" + family_name + "s/" + name, "60");
    Message(out).names("gelu, softmax, layer, adamw, constant").names(family_name + " = " + name);
    CHECK(!contains(out, "do not use"));
  }
  const std::string analysis = tried("dropped/models/inspection/dropped_analysis", "60");
  CHECK(!contains(analysis, "training"));  // no model would have it
  Message(analysis)
      .names("small models do not use analysis dropped_analysis")
      .offers("orrery --plugin=" + (folder / "p/dropped_analysis.so") + " inspect RUN --analysis=dropped_analysis");
  Message(tried("dropped/nn/losses/dropped_loss", "0"))
      .names("small models do not use loss dropped_loss")
      .offers("call it in the code");
}

TEST_CASE("try: a mask is one short file, which trains; coverage that contradicts visible is refused with the pair") {
  const Folder folder;
  const std::string path = std::string(ORRERY_SOURCE_DIR) + "/tests/dropped/nn/masks/dropped_mask.cpp";
  std::string text = read_file(path);
  CHECK(std::count(text.begin(), text.end(), '\n') <= 35);
  const Outcome tried = run_orrery({"try", path, "--out=" + (folder / "p"), "--steps=10"});
  INFO(tried.out, tried.err);
  CHECK(tried.code == 0);
  Message(tried.out).names("dropped_mask").value("j mod n > 0 or i = j").value("n=5").names("mask");
  CHECK(contains(tried.out, "mask = causal and dropped_mask"));
  CHECK(contains(tried.out, "\n # # # # # . # # # # . #"));  // query 0, n = 5
  Message(tried.out)
      .names("coverage() and visible() agree: passed")
      .names("with dropped_mask, dropped_mask(n=")
      .names("queries and keys")
      .value("2,048")
      .value("1,048,576");
  const Outcome trained = run_orrery(
      std::vector<std::string>{"train", "--data=" + folder.write("t", tiny_text()), "--out=" + (folder / "run"),
                               "--mask=causal and (dropped_mask(3) or window(2))",
                               "--plugin=" + (folder / "p/dropped_mask.so")} +
      tiny);
  INFO(trained.err);
  CHECK(trained.code == 0);

  const std::string formula = "  HOST_DEVICE bool visible";
  text.insert(text.find(formula),
              "  HOST_DEVICE Coverage coverage(Positions, Positions) const { return Coverage::all; }\n");
  const Outcome wrong = run_orrery({"try", folder.write("wrong.cpp", text), "--out=" + (folder / "p"), "--steps=9"});
  CHECK(wrong.code == 1);
  CHECK(!contains(wrong.out, "training"));
  CHECK(!contains(wrong.out, "--plugin="));
  Message(wrong.out).names("dropped_mask").value("FAILED").names("coverage").value("query 0").value("key 5");

  text.replace(text.find("return Coverage::all"), 20, "return n == 5 ? Coverage::some : Coverage::all");
  const Outcome other = run_orrery({"try", folder.write("other.cpp", text), "--out=" + (folder / "p"), "--steps=9"});
  CHECK(other.code == 1);
  Message(other.out).value("FAILED").names("dropped_mask(n=").names("coverage");
}
