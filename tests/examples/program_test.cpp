// The frame of the program: commands, help, version, and errors for typos.
#include "tests/examples/program.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/contents.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using orrery::testing::expect_error;
using orrery::testing::finds;
using orrery::testing::Message;
using Words = std::vector<std::string>;

Outcome run_shell(const std::string& command) {
  const Folder folder;
  const std::string all = "ORRERY='" ORRERY_PROGRAM "'; { " + command + "\n} > " + (folder / "out") + " 2> " +
                          (folder / "err") + " < /dev/null";
  const int status = std::system(all.c_str());
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return {code, read_file(folder / "out"), read_file(folder / "err")};
}

std::optional<Outcome> run_on_terminal(const std::string& command) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || ::ptsname(terminal) == nullptr || !fs::exists(::ptsname(terminal))) {
    MESSAGE("this system has no pseudo-terminals: nothing was shown on one");
    return std::nullopt;
  }
  ::close(terminal);
  const Folder folder;
  const std::string sh = "'sh " + folder.write("command.sh", command + "\n") + "'";
  return run_shell("ORRERY=\"$ORRERY\" script -qec " + sh + " /dev/null < /dev/null");
}

Outcome run_orrery(const std::vector<std::string>& words) { return RunningOrrery(words).end(); }

RunningOrrery::RunningOrrery(const std::vector<std::string>& words) {
  std::vector<std::string> all = {ORRERY_PROGRAM};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int out = ::open((folder_ / "out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  const int err = ::open((folder_ / "err").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  process_ = ::fork();
  if (process_ == 0) {
    ::dup2(in, 0), ::dup2(out, 1), ::dup2(err, 2);
    for (const int signal : {SIGINT, SIGHUP})
      std::signal(signal, SIG_DFL);  // else ignored if tests run in the background
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  for (const int file : {in, out, err}) ::close(file);
}
Outcome RunningOrrery::end() {
  int status = 0;
  rusage use = {};
  REQUIRE(::wait4(process_, &status, 0, &use) == process_);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return {code, read_file(folder_ / "out"), read_file(folder_ / "err"), int64_t{use.ru_maxrss} * 1024};
}

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return {};
  const size_t before = text.find_last_of('\n', end);
  return text.substr(before == std::string::npos ? 0 : before + 1,
                     end - (before == std::string::npos ? 0 : before + 1) + 1);
}
std::string read_file(const std::string& path) { return orrery::testing::contents(path); }

Folder::Folder() {
  std::string pattern = (fs::temp_directory_path() / "orrery_XXXXXX").string();
  path_ = mkdtemp(pattern.data());
}
Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}
std::string Folder::write(const std::string& name, const std::string& content) const {
  const std::filesystem::path path = path_ + "/" + name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::vector<std::string> operator+(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

namespace {

// Expects one message on stderr that begins with the program's name, and nothing else.
Message error(const std::vector<std::string>& words, int code = 2) {
  const Outcome outcome = run_orrery(words);
  CAPTURE(words);
  CHECK(outcome.err.starts_with("orrery: "));
  CHECK(outcome.err.find('\n') == outcome.err.size() - 1);
  CHECK(outcome.out.empty());
  return expect_error(outcome, code);
}

}  // namespace

TEST_CASE("program: every command has a help text with its settings") {
  for (const char* words : {"", "--help", "-h"}) {
    const Outcome outcome = run_shell(std::string("\"$ORRERY\" ") + words);
    CHECK(outcome.code == 0);
    for (const char* command : {"train", "generate", "gradcheck", "list", "bench"})
      CHECK(contains(outcome.out, command));
  }
  const Outcome train = run_orrery({"train", "--help=all"});
  CHECK(train.code == 0);
  for (const char* key : {"--config", "--model", "--layers", "--data", "--steps", "--learning_rate", "--optimizer",
                          "--seed", "--resume", "--profile"})
    CHECK(contains(train.out, key));
  CHECK(contains(train.out, "gpt-char-small"));
  CHECK(contains(train.out, "--losses.span_penalty"));
  for (const char* alias : {"--rate ", "--n_layer", "lr_decay_iters"}) CHECK(!contains(train.out, alias));
  Message(train.out).names("--steps").value(2000).names("updates");
  CHECK(contains(run_orrery({"generate", "--help"}).out, "--top_k"));
  CHECK(contains(run_orrery({"gradcheck", "--help"}).out, "--all"));
  CHECK(contains(run_orrery({"list", "--help"}).out, "--markdown"));
  CHECK(contains(run_orrery({"bench", "--help"}).out, "--seconds"));
}

TEST_CASE("program: --version lists the sources, compiler and libraries of the build") {
  const Outcome outcome = run_orrery({"--version"});
  CHECK(outcome.code == 0);
  for (const char* expected :
       {"orrery ", "sources", "compiler", "this processor", "fused attention", "OpenBLAS", "CUDA"}) {
    CAPTURE(expected);
    CHECK(contains(outcome.out, expected));
  }
}

TEST_CASE("program: a wrong command, setting or value gives an error message and exit code 2") {
  error({"tran"}).value("tran").offers("'train'").offers(
      "train, sweep, study, runs, compare, metrics, verify_resume, replay, report, inspect, prepare, evaluate, "
      "generate, translate, import, export, show, classify");
  error({"train", "--stepz=3"}).names("train").value("stepz").offers("steps");
  error({"train", "--n_layer", "0"}).names("train").names("layers").value(0).offers(1);
  error({"train", "--lr_decay_iters=9", "--max_iters=5"}).names("lr_decay_iters").value(9).names(5).offers("steps=9");
  error({"train", "--dataset=x"}).names("train").value("dataset").offers("data");
  error({"train", "--losses.span_penality=1"}).value("losses.span_penality").offers("losses.span_penalty");
  error({"train", "--steps=many"}).names("train").names("steps").value("many").offers("whole number");
  error({"train", "--steps"}).names("train").names("--steps").offers("--steps=2000");
  error({"train", "--data"}).names("train").names("--data").offers("--data=FILE");
  error({"train", "--lr_scales"}).names("train").names("--lr_scales").offers("--lr_scales=VALUE");
  error({"train", "steps=3"}).names("train").value("steps=3").offers("--key=value").offers("orrery train --help");
  error({"train", "-s", "3"}).names("train").value("-s").offers("--key=value").offers("orrery train --help");
  error({"train", "--model=gpt-char-smal"}).names("model").value("gpt-char-smal").offers("gpt-char-small");
  error({"generate", "--topk=3"}).names("generate").value("topk").offers("top_k");
  error({"generate"}).names("generate").names("model").offers("orrery generate runs/latest");
  error({"generate", "--checkpoint=/nowhere"}, 1).names("generate").value("/nowhere").offers("orrery train --out");
  error({"list", "activatoin"}).names("list").value("activatoin").offers("activation");
  error({"gradcheck"}).names("gradcheck").offers("orrery gradcheck").offers("--all");
  error({"gradcheck", "--all", "relu"}).names("--all").value("'relu'");
  error({"train", "--config="}).names("train").names("--config").offers("--config=examples/configs/quickstart.toml");
  error({"gradcheck", "swosh"}).names("gradcheck").value("swosh").offers("swish");
  error({"gradcheck", "adamw"}).names("gradcheck").value("adamw").names("optimizer").names("derivative");
  error({"bench"}).names("bench").names("group").offers("gemm, rows, attention, scaling, train, generate");
  error({"bench", "row"}).names("bench").names("group").value("row").offers("rows");
  error({"bench", "rows", "--precision", "high"}).names("bench").names("precision").value("high").offers("highest");
  error({"gradcheck", "relu", "--device=quantum"}).names("gradcheck").names("device").value("quantum").offers("cpu");
#if !defined(ORRERY_CUDA)
  error({"bench", "rows", "--device", "cuda"}, 1).names("device").value("cuda").offers("-DORRERY_CUDA=ON");
#endif
  error({"bench", "rows", "--only", "nothing"}).names("bench").value("nothing").offers("--only");
}

TEST_CASE("program: arguments after a lone -- are not options") {
  const Folder folder;
  const std::string text = folder.write("--text", tiny_text());
  expect_error(run_orrery({"train", "--data=" + text, "--steps=2", "--", "--seed=7", "foo"})).names("--seed=7");
  expect_error(run_orrery({"list", "--", "foo"})).names("foo");
  expect_error(run_orrery({"list", "--", "--plugin=/nowhere.so"})).names("--plugin=/nowhere.so");
  expect_error(run_orrery({"generate", "--checkpoint=/nowhere", "--", "--seed=99"})).names("--seed=99");
  CHECK(run_orrery({"list", "--", "relu"}).out == run_orrery({"list", "relu"}).out);
  CHECK(run_orrery({"train", "--help", "--", "foo"}).out == run_orrery({"train", "--help"}).out);
  CHECK(run_orrery({"help", "train", "--", "foo"}).out == run_orrery({"train", "--help"}).out);
}

TEST_CASE("program: arguments before a command are refused, and help COMMAND prints its help") {
  expect_error(run_orrery({"foo", "train", "--data=none"})).names("foo").names("train");
  expect_error(run_orrery({"--steps=3", "bar", "train", "--help"})).names("--steps=3 bar").names("train");
  expect_error(run_orrery({"foo"})).names("foo").offers("train");
  expect_error(run_orrery({"help", "trian"})).names("trian").offers("train");
  for (const char* command : {"train", "generate", "list", "study"}) {
    const Outcome outcome = run_orrery({"help", command});
    CHECK(outcome.code == 0);
    CHECK(outcome.out == run_orrery({command, "--help"}).out);
  }
  CHECK(run_orrery({"help", "train", "--model=vit-fashion"}).out ==
        run_orrery({"train", "--model=vit-fashion", "--help"}).out);
  CHECK(run_orrery({"help", "train", "--model", "vit-fashion"}).out ==
        run_orrery({"train", "--model=vit-fashion", "--help"}).out);
  expect_error(run_orrery({"help", "train", "extra", "words"}))
      .names("help")
      .value("extra")
      .offers("orrery help train");
  expect_error(run_orrery({"help", "train", "--model=vit-fashion", "generate"})).names("help").value("generate");
  const Outcome general = run_orrery({"help"});
  CHECK(general.code == 0);
  CHECK(general.out == run_orrery({"--help"}).out);
  CHECK(general.out == run_orrery({}).out);
  CHECK(contains(general.out, "orrery help COMMAND"));
}

TEST_CASE("program: former option names work like the present ones, and help lists only the present ones") {
  struct Renamed {
    Words command;
    std::string former, present, value;
  };
  const Folder folder;
  const std::string run = folder / "none", file = folder / "none.html";
  const std::vector<Renamed> all = {{{"inspect", run}, "look", "analysis", "heads"},
                                    {{"inspect", run}, "place", "position", "1"},
                                    {{"inspect", run}, "other", "patch_from", "a text"},
                                    {{"inspect", run}, "page", "html", file},
                                    {{"report", run}, "look", "analysis", "none"},
                                    {{"sweep", "--data=" + run, "--seed={1,2}"}, "against", "baseline", "7"},
                                    {{"sweep", "--data=" + run, "--seed={1,2}"}, "fresh", "retrain", "yes"},
                                    {{"study", run}, "fresh", "retrain", "yes"},
                                    {{"study", run}, "judge", "test", "no"},
                                    {{"translate", "--checkpoint=" + run}, "most_tokens", "max_tokens", "5"},
                                    {{"translate", "--checkpoint=" + run}, "batch", "batch_size", "1"},
                                    {{"import", run, "--out=" + file}, "check", "reference_logits", "a file"},
                                    {{"compare", run, run}, "figures", "metrics", "loss"},
                                    {{"metrics", run}, "figures", "metrics", "loss"},
                                    {{"train", "--data=" + run}, "batch", "batch_size", "2"}};
  for (const Renamed& each : all) {
    INFO(each.command[0], " ", each.former);
    const auto with = [&](const std::string& option, const std::string& value) {
      return run_orrery(each.command + Words{"--" + option + "=" + value});
    };
    const Outcome before = with(each.former, each.value), now = with(each.present, each.value);
    CHECK((before.code == 1 || before.code == 2));
    CHECK(before.code == now.code);
    CHECK(before.err == now.err);
    CHECK(!contains(before.err, "unknown setting"));
    CHECK(contains(with(each.former + "s", each.value).err, "unknown setting"));
    const std::string help = run_orrery({each.command[0], "--help=all"}).out;
    CHECK(finds(help, "\n  --" + each.present + "[= \n]"));
    CHECK(!finds(help, "\n  --" + each.former + "[= \n]"));
  }
}

TEST_CASE("program: list accepts former and alternative names and shows only the present ones") {
  const auto list = [](const std::string& name) { return run_orrery({"list", name}).out; };
  const std::vector<Words> same = {{"metric", "metrics", "figure", "figures"},
                                   {"analysis", "analyses", "look", "looks"},
                                   {"rotary", "rope"},
                                   {"dense", "mlp"},
                                   {"gated", "glu"},
                                   {"adamw", "adam"},
                                   {"rms", "rmsnorm"},
                                   {"token_ids", "numbers"}};
  for (const Words& names : same)
    for (const std::string& name : names) {
      CHECK(!list(name).empty());
      CHECK(list(name) == list(names[0]));
    }
  const std::string all = run_orrery({"list"}).out, help = run_orrery({"list", "--help"}).out;
  for (const char* former : {"(rope)", "(rmsnorm)", "(layernorm)", "(numbers)"}) CHECK(!contains(all, former));
  for (const char* former : {"figure", "look"}) CHECK(!contains(help, former));
}
