#include "models/settings/settings_file.h"

#include <doctest/doctest.h>

#include <fstream>

#include "engine/system/files.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"

namespace orrery::models {
namespace {

using orrery::testing::expect_error;
using orrery::testing::Folder;
using orrery::testing::Message;

struct Loss {
  double weight = 0.5;
  template <class V>
  void visit(V& v) {
    v("weight", weight, "of the extra loss");
  }
};

struct Run {
  int64_t steps = 100;
  double rate = 1e-3;
  bool bias = false;
  std::string out = "run";
  Spec attention = parse_spec("softmax"), optimizer = parse_spec("adamw(weight_decay=0.1)");
  std::vector<double> betas = {0.9, 0.99};
  Loss loss;
  template <class V>
  void visit(V& v) {
    v("steps", steps, "updates", at_least(1));
    v("rate", rate, "step size");
    v("bias", bias, "biases");
    v("out", out, "folder");
    v("attention", attention, "how it reads");
    v("optimizer", optimizer, "how it learns");
    v("betas", betas, "of the moments");
    v.group("loss", loss);
  }
};

class File {
 public:
  explicit File(const std::string& content = "") { std::ofstream(path_) << content; }
  const std::string& path() const { return path_; }
  Assignments read() const {
    Run scratch;
    static constexpr ForeignKey foreign[] = {
        {"max_iters", "steps"}, {"dataset", "did you mean 'data', a file?"}, {"decay", "optimizer.weight_decay"}};
    return read_settings_file(path_, settings_of(scratch), foreign);
  }

 private:
  Folder folder_;
  std::string path_ = folder_ / "run.toml";
};

Message error(const std::string& content) {
  const File file(content);
  return expect_error([&] { file.read(); }).names(file.path());
}

Run run_of(const std::string& content) {
  Run run;
  for (const auto& [key, value] : File(content).read()) set_setting(run, "train", key, value);
  return run;
}

TEST_CASE("settings file: equals the command line, in its order") {
  const File file(
      "# a run\n"
      "steps = 2_000\n"
      "rate = 6e-4   # peak\n"
      "out = \"a \\\"new\\\" folder\"\n"
      "bias = true\n"
      "attention = { name = \"relu_former(relu)\", span = 64, gamma = 1.5, attend_to_self = false, inner = { name = "
      "\"f\", x = 1 "
      "} }\n"
      "betas = [0.9, 1]\n"
      "[optimizer]\n"
      "weight_decay = 0.05\n"
      "beta2 = 0.99\n"
      "[loss]\n"
      "weight = 2\n");
  const Assignments expected = {{"steps", "2000"},
                                {"rate", "6e-4"},
                                {"out", "a \"new\" folder"},
                                {"bias", "yes"},
                                {"attention", "relu_former(relu, span=64, gamma=1.5, attend_to_self=no, inner=f(x=1))"},
                                {"betas", "0.9, 1"},
                                {"optimizer.weight_decay", "0.05"},
                                {"optimizer.beta2", "0.99"},
                                {"loss.weight", "2"}};
  const Assignments read = file.read();
  REQUIRE(read.size() == expected.size());
  for (size_t i = 0; i < read.size(); ++i) CHECK(read[i] == expected[i]);
  Run run;
  for (const auto& [key, value] : read) set_setting(run, "train", key, value);
  CHECK(run.steps == 2000);
  CHECK(run.rate == 6e-4);
  CHECK(run.bias);
  CHECK(run.betas == std::vector<double>{0.9, 1});
  CHECK(run.loss.weight == 2);
  CHECK(print(run.optimizer) == "adamw(weight_decay=0.05, beta2=0.99)");
  CHECK(print(run_of("attention = \"softmax(1, soft_cap=30)\"").attention) == "softmax(1, soft_cap=30)");
  CHECK(print(run_of("attention = { name = \"f\", list = [1, 2], none = [] }").attention) ==
        "f(list=list(1, 2), none=list)");
  CHECK(print(run_of("[attention]\nname = \"f\"\nx = \"g(1)\"").attention) == "f(x=g(1))");
  CHECK(run_of("betas = []").betas.empty());
  CHECK(File("").read().empty());
}

TEST_CASE("settings file: errors have the file and the line") {
  error("rate = 1\n\nmax_iters = 0\n").names(3).names("steps").value(0).offers(1);
  error("steps = 1\n\ndataset = 5\n").names(3).value("dataset").offers("data");
  error("\nstep = 5\n").names(2).value("step").offers("steps");
  error("steps = \"many\"").names(1).names("steps").value("many").offers("whole number");
  error("steps = 1.5").names(1).names("steps").value("1.5").offers("whole number");
  error("steps = 0").names(1).names("steps").value(0).offers(1);
  error("rate = 1\nsteps = 2026-01-01").names(2).offers("number").offers("false");
  error("betas = [[1]]").names(1).offers("number").offers("false");
  error("attention = \"softmax(\"").names(1).names("attention").value("softmax(").offers("number");
  error("attention = { name = \"softmax(\" }").names(1).value("softmax(").offers("number");
  error("attention = { name = 5 }").names(1).names("name").offers("quotes");
  error("attention = { name = \"f\", x = { y = 1 } }").names(1).names("table").offers("name");
  error("[loss]\nwieght = 1").names(2).value("loss.wieght").offers("loss.weight");
  error("steps = 1\nsteps = 2").names(2);
  error("steps = \n").names(1);
  error("steps = 1\n= 3").names(2);
  Run scratch;
  expect_error([&] { read_settings_file("/nowhere/run.toml", settings_of(scratch)); })
      .names("/nowhere/run.toml")
      .value("No such file");
}

TEST_CASE("settings file: two names of one setting are an error, as one name given twice") {
  error("max_iters = 4\n\nsteps = 3\n").names(3).names("steps").value("max_iters").value(1).offers("write it once");
  error("steps = 3\nmax_iters = 4\n").names(2).names("max_iters").value("steps").value(1).offers("write it once");
  error("loss.weight = 1\n\"loss.weight\" = 2\n").names(2).names("loss.weight").value(1).offers("write it once");
  error("decay = 1\n[optimizer]\nweight_decay = 2\n").names(3).value("decay").offers("write it once");
}

TEST_CASE("settings file: invalid TOML is reported in terms of the user") {
  const auto error = [](const std::string& content) {
    Message message = models::error(content);
    for (const char* word : {"parsing", "redefine", "Encountered", "encountered", "expected", "prohibited"})
      CHECK_MESSAGE(message.message().find(word) == std::string::npos, message.message());
    return message;
  };
  error("rate = 1\nsteps = 1\nsteps = 2\n").names(3).value("steps").offers("write it once");
  error("[loss]\nweight = 1\n[loss]\nweight = 1\n").names(3).value("loss").offers("write it once");
  error("attention = { name = \"f\", x = 1, x = 2 }").names(1).value("x").offers("write it once");
  error("steps 4\n").names(1).value("steps 4").offers("KEY = VALUE");
  error("rate = 1\r\nsteps = 4 rate = 5\r\n").names(2).value("'steps = 4 rate = 5'").offers("KEY = VALUE");
  error("[a b]\n").names(1).value("[a b]").offers("[TABLE]");
  error("betas = [1 2]\n").names(1).value("betas = [1 2]");
  error("steps = 1\nout = \"\\uD800\"\n").names(2).value("\\u").offers("character itself");
  error("steps = 1\nout = \"\xff\"\n").names("UTF-8").offers("UTF-8");
  error("rate = 1\nsteps = 99999999999999999999\n").names(2).value("99999999999999999999").offers("smaller");
  error("rate = -1e+400\n").names(1).value("-1e+400").offers("smaller");
  error("rate = 1e-4_00\n").names(1).value("1e-4_00").offers("0");
  CHECK(run_of("rate = 1e-300").rate == 1e-300);
  CHECK(run_of("steps = +9223372036854775807").steps == INT64_MAX);
}

TEST_CASE("settings file: a written file reads back as equal settings") {
  Run run;
  run.rate = 0.1 + 0.2;
  run.bias = true;
  run.out = "tab\t\"quoted\\\" é 7";
  run.attention = parse_spec("softmax(0.5, span=adaptive(1024, R=32))");
  run.loss.weight = 1e-30;
  for (const std::string& out :
       {std::string(run.out), std::string("007"), std::string("1.50"), std::string("yes"), std::string(),
        std::string("1e5"), std::string("-3"), std::string(".5"), std::string("inf")}) {
    run.out = out;
    const File file;
    write_settings_file(file.path(), list_settings(run));
    CHECK(file.read() == list_settings(run));
  }
  const File file;
  write_settings_file(
      file.path(), Assignments{{"steps", "5"}, {"rate", "0.001"}, {"bias", "no"}, {"out", "x"}, {"loss.weight", "2"}});
  CHECK(is_written_settings_file(file.path()));
  CHECK(read_file(file.path()) ==
        "# The settings of a run, written by orrery when it began.\n"
        "steps = 5\nrate = 0.001\nbias = false\nout = \"x\"\n\"loss.weight\" = 2\n");
}

TEST_CASE("a written settings file lists the plug-ins that it needs, quoted for a shell") {
  Run run;
  const File file;
  write_settings_file(file.path(), list_settings(run), std::vector<std::string>{"a/b-1.so", "it's \n\xff.so"});
  CHECK(plugins_of_settings_file(file.path()) ==
        std::vector<std::string>{"--plugin=a/b-1.so", "--plugin=$'it\\x27s \\x0A\\xFF.so'"});
  CHECK(is_written_settings_file(file.path()));
  CHECK(file.read() == list_settings(run));
  write_settings_file(file.path(), Assignments());
  CHECK(plugins_of_settings_file(file.path()).empty());
  write_file_atomically(file.path(), "# They need --plugin=a.so\n");  // not written by orrery
  CHECK(plugins_of_settings_file(file.path()).empty());
  CHECK(plugins_of_settings_file(file.path() + ".absent").empty());
}

}  // namespace
}  // namespace orrery::models
