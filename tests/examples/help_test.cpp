// Help in the width of the window, explanations of settings and names, completion, the man page.
#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

#include "tests/examples/program.h"
#include "tests/support/message.h"

using orrery::testing::expect_error;
using orrery::testing::Message;
using Words = std::vector<std::string>;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

size_t longest_line(const std::string& text) {
  size_t longest = 0;
  for (const std::string& line : lines_of(text)) longest = std::max(longest, line.size() - line.ends_with('\r'));
  return longest;
}

bool has_line(const std::string& text, const std::string& line) {
  const std::vector<std::string> lines = lines_of(text);
  return std::find(lines.begin(), lines.end(), line) != lines.end();
}

const char* const commands[] = {"train",         "sweep",     "study",  "runs",    "compare",   "metrics",
                                "verify_resume", "replay",    "report", "inspect", "prepare",   "evaluate",
                                "generate",      "translate", "import", "export",  "show",      "classify",
                                "gradcheck",     "list",      "try",    "bench",   "completion"};

Outcome run_bash(const std::string& script) {
  const Folder folder;
  return run_shell("export ORRERY; bash '" + folder.write("script.bash", script) + "'");
}

// Returns whether a program is there: tests of completion use the shells that are installed.
bool is_installed(const std::string& program) { return run_shell("command -v " + program).code == 0; }

}  // namespace

TEST_CASE("help: a setting that another task or model has is explained, with the argument that selects it") {
  const auto help = [](const Words& words) { return run_orrery(Words{"help"} + words).out; };
  for (const char* key : {"source_field", "target_field", "source_column", "document_column"})
    for (const Words& words : {Words{"train", key}, Words{key}})
      CHECK(contains(help(words), std::string("orrery train --model=encoder_decoder --") + key + "="));
  CHECK(contains(help({"train", "patch"}), "orrery train --model=vit --patch="));
  CHECK(contains(help({"train", "text_field"}), "orrery train --text_field=text"));
  CHECK(contains(help({"train", "--model=encoder_decoder", "source_field"}), "orrery train --source_field=source"));
  const Outcome unknown = run_orrery({"help", "train", "sourse_field"});
  CHECK(unknown.code == 2);
  Message(unknown.err).value("sourse_field").names("train").offers("orrery help train");
}

TEST_CASE("help: lines have at most 80 columns; the width of a terminal changes this limit") {
  for (const char* command : commands) {
    CAPTURE(command);
    for (const char* flag : {"--help", "--help=all"}) {
      const Outcome outcome = run_orrery({command, flag});
      CHECK(outcome.code == 0);
      CHECK(longest_line(outcome.out) <= 80);
      CHECK(!contains(outcome.out, "\n\n\n"));
      CHECK(contains(outcome.out, std::string("Usage: orrery ") + command));
    }
  }
  const std::string general = run_orrery({"--help"}).out;
  CHECK(longest_line(general) <= 80);
  CHECK(contains(general, "\n  help  "));
  CHECK(longest_line(run_orrery({"help", "train", "optimizer"}).out) <= 80);
  if (const auto narrow = run_on_terminal("stty cols 50 && \"$ORRERY\" train --help=all"))
    CHECK(longest_line(narrow->out) <= 50);
  if (const auto wide = run_on_terminal("stty cols 200 && \"$ORRERY\" train --help=all")) {
    CHECK(longest_line(wide->out) <= 100);
    CHECK(longest_line(wide->out) > 80);
  }
}

TEST_CASE("help: an example can be pasted into a shell, and the usage is broken between arguments") {
  for (const char* command : commands) {
    CAPTURE(command);
    const std::string out = run_orrery({command, "--help"}).out, title = "Example: ";
    const size_t example = out.find(title);
    REQUIRE(example != out.npos);
    bool continues = false;
    for (std::string line : lines_of(out.substr(example + title.size()))) {
      line.erase(0, line.find_first_not_of(' '));
      CHECK_MESSAGE((continues || line.starts_with("orrery ")), line);
      continues = line.ends_with(" \\");
    }
    CHECK(!continues);
    CHECK(!contains(out, "=value\n"));
  }
  CHECK(contains(run_orrery({"study", "--help"}).out, "\n         orrery report runs/studies/feed_forward_can"));
}

TEST_CASE("help: the common settings of train fit on one screen, in sections; --help=all lists all settings") {
  for (const char* model : {"gpt-char-small", "vit-fashion", "translation-small", "resnet"}) {
    CAPTURE(model);
    const Outcome brief = run_orrery({"train", "--help", std::string("--model=") + model});
    CHECK(brief.code == 0);
    CHECK(lines_of(brief.out).size() <= 40);
    for (const char* section : {"model:", "data:", "run:", "steps:", "machine:"}) CHECK(has_line(brief.out, section));
    CHECK(contains(brief.out, "Example: orrery train"));
  }
  const Outcome brief = run_orrery({"train", "--help"}), full = run_orrery({"train", "--help=all"});
  CHECK(contains(brief.out, "--help=all"));
  CHECK(!contains(brief.out, "--residual_gain"));
  CHECK(contains(brief.out, "  --data=... "));
  for (const char* whole :
       {"CPU threads (0: OMP_NUM_THREADS, else all cores)", "tokenizer by name (character, byte, ...)",
        "optimizer from `orrery list optimizer`", "from `orrery list normalization`",
        "continue a run: yes (that in `out`) or its folder", "(...) in full: orrery train --help=all"})
    CHECK(contains(brief.out, whole));
  CHECK(contains(full.out, "--residual_gain=1 "));
  CHECK(contains(full.out, "--learning_rate=0.001 "));
  CHECK(contains(full.out, "(0, 1e30]"));
  CHECK(has_line(full.out, "checks:"));
  CHECK(contains(run_orrery({"sweep", "--help=all"}).out, "--residual_gain=1 "));
  CHECK(!contains(run_orrery({"sweep", "--help"}).out, "--layers"));
}

TEST_CASE("help: a setting whose default depends on others says what holds if it is not given") {
  for (const Words& words : {Words{"train", "validation_data", "if not given, the end of `data`"},
                             Words{"train", "init_from", "if not given, random initial weights"},
                             Words{"train", "task", "if not given, that of the model"},
                             Words{"generate", "prompt", "if not given, the token that begins a text"},
                             Words{"export", "format", "if not given, the one that fits the model"},
                             Words{"report", "out", "if not given, report.html"}}) {
    CAPTURE(words);
    const Outcome help = run_orrery({"help", words[0], words[1]});
    std::istringstream out(help.out);
    std::string in_one_line;
    for (std::string word; out >> word;) in_one_line += word + " ";
    CHECK(contains(in_one_line, words[2]));
  }
  for (const char* command : commands) CHECK(!contains(run_orrery({command, "--help=all"}).out, "; none: "));
}

TEST_CASE("help: a setting is printed with its default, range, former names and the catalogue's formula") {
  Message(run_orrery({"help", "train", "learning_rate"}).out)
      .names("--learning_rate")
      .names("peak learning rate")
      .names("default:")
      .value("0.001")
      .names("range:")
      .value("(0, 1e30]")
      .names("also:")
      .names("rate");
  // The last step's rate of a linear decay is still above it: tests/nn/schedules/schedule_test.cpp.
  Message(run_orrery({"help", "train", "min_learning_rate"}).out)
      .names("--min_learning_rate")
      .names("decaying schedule")
      .value("reached one step after the last step");
  CHECK(run_orrery({"help", "learning_rate"}).out == run_orrery({"help", "train", "learning_rate"}).out);
  Message(run_orrery({"help", "train", "data"}).out).names("--data=...").names("default:").value("not given");
  Message(run_orrery({"help", "train", "n_layer"}).out).names("--layers").names("n_layer");
  Message(run_orrery({"help", "layers", "--model=vit-fashion"}).out).names("--layers");
  Message(run_orrery({"help", "train", "resume"}).out).offers("yes (that in `out`)").offers("its folder");
  CHECK(!contains(run_orrery({"help", "train", "resume"}).out, "values:"));
  Message(run_orrery({"help", "train", "dtype"}).out).names("values:").offers("f32, f64, bf16");
  Message(run_orrery({"help", "initialization"}).out).offers("normal(STD)").offers("relu_former").names("0.02");
  Message(run_orrery({"help", "train", "optimizer"}).out).offers("orrery list optimizer").names("adamw").names("arXiv");
  CHECK(run_orrery({"help", "train", "optimizer.beta1"}).out == run_orrery({"help", "train", "optimizer"}).out);
  Message(run_orrery({"help", "generate", "top_k"}).out).names("orrery generate --top_k").names("range:");
  Message(run_orrery({"help", "relu"}).out).names("activation:").names("relu").names("max(x, 0)");
  Message(run_orrery({"help", "attention"}).out).names("--attention").names("softmax").names("pointwise");
  expect_error(run_orrery({"help", "train", "learnin_rate"})).value("learnin_rate").offers("learning_rate");
  expect_error(run_orrery({"help", "pointwis"})).names("help").value("pointwis").offers("pointwise");
  expect_error(run_orrery({"help", "relu", "gelu"})).names("help").value("gelu").offers("one name");
}

TEST_CASE("help: a component is printed with a line per setting: default or given value, meaning, range") {
  const auto lines = [](const std::string& name) { return run_orrery({"help", name}).out; };
  const std::string dense = lines("dense");
  CHECK(contains(dense, "      settings:\n        activation=gelu_tanh  activation F of the hidden units\n"));
  CHECK(contains(lines("dense(relu)"), "        activation=relu  activation F of the hidden units\n"));
  CHECK(lines("dense(activation=relu)") == lines("dense(relu)"));
  Message(lines("softmax"))
      .names("soft_cap=0")
      .names("cap c of the scores")
      .offers("0: no cap")
      .names("gate=none")
      .names("none: no gate")
      .names("dropout=0")
      .value("[0, 1)");
  Message(lines("slots")).names("N").names("number of slots").value("[1, 65536]").names("split=no").names("scaled=yes");
  Message(lines("adaptive_span")).names("S").names("longest span").names("R=32").names("length of the ramp");
  Message(lines("elu")).names("settings:").names("alpha=1  [0, 1e6]");
  Message(lines("gpt")).names("layers=4").names("number of blocks").names("d_ff=0").offers("a feed-forward (0: 4 *");
  Message(lines("gpt-char-small")).names("layers=4").names("number of blocks").names("context=64");
  CHECK(!contains(lines("gpt-char-small"), "d_ff"));  // as in the class
  Message(run_orrery({"help", "train", "optimizer"}).out).names("beta2=0.99").names("decay of the mean of the squared");
  for (const char* name : {"softmax", "gpt", "muon", "rotary(base=500)"}) CHECK(longest_line(lines(name)) <= 80);
  expect_error(run_orrery({"help", "dense(size=3)"}), 2).names("dense").value("'size'").offers("orrery help dense");
  expect_error(run_orrery({"help", "dense(relu, 3)"}), 2).names("dense").value("'3'").offers("orrery help dense");
  CHECK(contains(run_orrery({"list", "dense"}).out, "\n      settings: activation=gelu_tanh\n"));
}

TEST_CASE("help: the error for an activation in place of a layer offers the layer that takes the activation") {
  const Folder folder;
  const std::string data = "--data=" + folder.write("text.txt", tiny_text());
  const auto error = [&](const std::string& setting) {
    return expect_error(
        run_orrery(std::vector<std::string>{"train", data, "--out=" + (folder / "run"), setting} + tiny));
  };
  error("--attention=relu").names("attention").value("relu").offers("did you mean 'pointwise(relu)'?");
  error("--attention=elu(2)").names("attention").value("elu").offers("'pointwise(elu(2))'");
  error("--feed_forward=relu").names("feed_forward").value("relu").offers("'dense(relu)'");
  error("--feed_forward=swiglu").names("feed_forward").value("swiglu").offers("'gated(silu)'");
  error("--feed_forward=geglu").names("feed_forward").value("geglu").offers("'gated(gelu)'");
  error("--normalization=tanh").names("normalization").value("tanh").offers("'dynamic(tanh)'");
  error("--normalization=layer_norm").names("normalization").value("layer_norm").offers("layer");
  error("--position=relu").names("position").value("relu").offers("rotary");
}

TEST_CASE("completion: bash completes commands, settings, values and paths") {
  if (!is_installed("bash")) return;
  const Folder folder;
  folder.write("my text.txt", "");
  const Outcome outcome = run_bash(R"(source <("$ORRERY" completion bash)
complete -p orrery
complete_line() {
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  _orrery 2> /dev/null  # compopt works during a completion only
  printf '%s;' "${COMPREPLY[@]}"
  echo
}
complete_line orrery verify
complete_line orrery train --decoder_att
complete_line orrery train --attention = poi
complete_line orrery train --attention=poi
complete_line orrery train --model = gpt-char-sm
complete_line orrery train --keep_best =
complete_line orrery metrics --format =
complete_line orrery inspect --analysis = neu
complete_line orrery train --metrics=ent
complete_line orrery sweep --metric = t
complete_line orrery compare --metrics = lo
complete_line orrery list sparse
complete_line orrery completion z
cd ')" + folder.path() + R"(' && complete_line orrery train --data = my
)");
  INFO(outcome.err);
  CHECK(outcome.code == 0);
  CHECK(lines_of(outcome.out) == std::vector<std::string>{"complete -F _orrery orrery", "verify_resume;",
                                                          "--decoder_attention=;", "pointwise;",
                                                          "--attention=pointwise;", "gpt-char-small;", "yes;no;",
                                                          "csv;tensorboard;", "neurons;", "--metrics=entropy;",
                                                          "training_loss;", "loss;", "sparsemax;", "zsh;",
                                                          "my text.txt;"});
}

TEST_CASE("completion: the scripts of bash, zsh and fish are valid, and zsh and fish complete values") {
  const Folder folder;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    CAPTURE(shell);
    const Outcome script = run_orrery({"completion", shell});
    CHECK(script.code == 0);
    CHECK(contains(script.out, "gated"));
    if (is_installed(shell))
      CHECK(run_shell(std::string(shell) + " -n '" + folder.write("script", script.out) + "'").code == 0);
  }
  if (is_installed("zsh")) {
    const std::string script = folder.write(
        "script.zsh", "compdef() { }\n" + run_orrery({"completion", "zsh"}).out + "_orrery_values train device\n");
    CHECK(run_shell("zsh -f '" + script + "'").out == "cpu cuda\n");
  }
  if (is_installed("fish")) {
    const std::string script = folder.write(
        "script.fish", run_orrery({"completion", "fish"}).out + "complete -C 'orrery train --device=cu'\n");
    CHECK(contains(run_shell("HOME='" + folder.path() + "' fish '" + script + "'").out, "--device=cuda\t"));
  }
  expect_error(run_orrery({"completion"})).names("completion").value(0).offers("bash, fish, man, zsh");
  expect_error(run_orrery({"completion", "bsh"})).names("completion").value("bsh").offers("bash");
}

TEST_CASE("completion: the man page lists every command and its settings") {
  const Outcome page = run_orrery({"completion", "man"});
  CHECK(page.code == 0);
  CHECK(page.out.starts_with(".TH ORRERY 1"));
  for (const char* command : commands) CHECK(contains(page.out, std::string("\n.SS orrery ") + command + " "));
  CHECK(contains(page.out, "\n.B \\-\\-learning_rate=0.001\n"));
  if (!is_installed("groff")) return;
  const Folder folder;
  const Outcome drawn = run_shell("groff -man -Tutf8 '" + folder.write("orrery.1", page.out) + "'");
  CHECK(drawn.code == 0);
  CHECK(contains(drawn.out, "verify_resume"));
}
