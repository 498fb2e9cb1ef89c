// The command line's conventions: exit codes, streams, a run as a positional argument, colors,
// progress, threads and pipes.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "tests/examples/training.h"
#include "tests/support/message.h"

using Words = std::vector<std::string>;
using orrery::testing::expect_error;
using orrery::testing::Message;

namespace {

const std::string shapes = ORRERY_SOURCE_DIR "/tests/models/images/shapes";

}  // namespace

TEST_CASE("exit code: wrong usage gives 2") {
  const Folder folder;
  const std::string run = trained_run(folder, "run"), data = "--data=" + (folder / "text.txt"),
                    none = "--out=" + (folder / "none");
  for (const Words& words : {Words{"tran"},
                             Words{"foo", "train"},
                             Words{"help", "train", "extra"},
                             Words{"list", "--plugin"},
                             Words{"train", data, none, "--stepz=3"},
                             Words{"train", data, none, "--steps=many"},
                             Words{"train", data, none, "--batch_size=0"},
                             Words{"train", data, none, "--model=gpt-char-smal"},
                             Words{"train", data, none, "--attention=sofmax"},
                             Words{"train", data, none, "--attention=softmax(dropout=2)"},
                             Words{"train", data, none, "--optimizer=adamw(beta3=1)"},
                             Words{"train", none},
                             Words{"train", "--steps"},
                             Words{"generate"},
                             Words{"generate", run, "more"},
                             Words{"generate", run, "--temperature=-1"},
                             Words{"generate", run, "--prompt=a", "--start=b"},
                             Words{"evaluate", run, "--tokenizer=byte"},
                             Words{"classify", run},
                             Words{"list", "activatoin"},
                             Words{"list", "relu", "--markdown"},
                             Words{"gradcheck"},
                             Words{"gradcheck", "swosh"},
                             Words{"bench", "row"},
                             Words{"compare", run},
                             Words{"show"},
                             Words{"report"},
                             Words{"inspect", run, "--image=x.png"},
                             Words{"import", run},
                             Words{"export", run},
                             Words{"prepare"},
                             Words{"replay"},
                             Words{"verify_resume"},
                             Words{"metrics"},
                             Words{"try"},
                             Words{"study"},
                             Words{"runs", "--size"},
                             Words{"sweep", data, "--threads=2"},
                             Words{"sweep", data, "--baseline=7"},
                             Words{"sweep", none},
                             Words{"sweep", data, "--seed={1,2"},
                             Words{"sweep", data, "--dropout={0,0.0}"},
                             train_tiny(folder, "none", {"--lr_scales=a"}),
                             train_tiny(folder, "none", {"--nan_guard", "--profile"}),
                             train_tiny(folder, "none", {"--losses.span_penalty=1"}),
                             Words{"train", none, "--init_from=" + run, "--model=stream"},
                             Words{"train", "--resume=" + run, "--layers=2"},
                             Words{"inspect", run, "--text=abe", "--layer=9"},
                             Words{"inspect", run, "--text=abe", "--head=9"},
                             Words{"inspect", run, "--text=abe", "--hooks=nothing"},
                             Words{"inspect", run, "--html=" + (folder / "x.png")},
                             Words{"inspect", run, "--out=" + (folder / "x.png")},
                             Words{"report", run, "--out=" + (folder / "x.png")},
                             Words{"metrics", run, "--out=" + (folder / "x.png")},
                             Words{"metrics", run, "--metrics=los"},
                             Words{"compare", run, run, "--metrics=los"},
                             Words{"show", run, "--tensor=norm.weigth"},
                             Words{"show", run, "--tensor=norm.weight", "--out=" + (folder / "x.png")}}) {
    CAPTURE(words);
    expect_error(run_orrery(words), 2).names("orrery");
  }
  CHECK(!std::filesystem::exists(folder / "x.png"));
}

TEST_CASE("exit code: other errors give 1, including wrong settings in files") {
  const Folder folder;
  const std::string run = trained_run(folder, "run"), none = "--out=" + (folder / "none");
  const std::string config = folder.write("wrong.toml", "stepz = 3\n"),
                    claim = folder.write("claim.toml",
                                         "source = \"a\"\nsentence = \"b\"\nkind = \"trained\"\nseeds = [1]\n"
                                         "metric = \"loss\"\n[base]\nstepz = 3\n");
  for (const Words& words :
       {Words{"train", "--data=/nowhere.txt", none}, Words{"train", "--config=/nowhere.toml", none},
        Words{"train", "--config=" + config, none}, train_tiny(folder, "run"), Words{"generate", "/nowhere"},
        Words{"show", "/nowhere"}, Words{"study", claim}, Words{"study", "/nowhere.toml"}}) {
    CAPTURE(words);
    expect_error(run_orrery(words), 1).names("orrery");
  }
  Message(run_orrery({"--help"}).out).names("Exit codes").value("2: wrong usage");
}

TEST_CASE("streams: only results go to standard output") {
  const Folder folder;
  const std::string run = trained_run(folder, "run");
  for (const Words& words : {Words{"evaluate", run}, Words{"show", run}, Words{"list", "relu"},
                             Words{"gradcheck", "relu"}, Words{"metrics", run}, Words{"compare", run, run}}) {
    CAPTURE(words);
    const Outcome outcome = run_orrery(words);
    CHECK(outcome.code == 0);
    CHECK(!outcome.out.empty());
    CHECK(outcome.err.empty());
  }
  const Outcome swept = run_orrery(Words{"sweep", "--data=" + (folder / "text.txt"), "--seed={1,2}",
                                         "--out=" + (folder / "sweep"), "--runs=" + (folder / "pool")} +
                                   tiny);
  REQUIRE_MESSAGE(swept.code == 0, swept.err);
  CHECK(contains(swept.out, "reference"));
  CHECK(last_line(swept.out) == "  " + (folder / "sweep/runs.csv"));
  for (const char* report : {"1 row, 2 runs", "2 of 2", "pool: "}) {
    CAPTURE(report);
    CHECK(contains(swept.err, report));
    CHECK(!contains(swept.out, report));
  }
}

TEST_CASE("arguments: every command that reads a run accepts it without an option name") {
  const Folder folder;
  const std::string run = trained_run(folder, "run"), checkpoint = "--checkpoint=" + run;
  const Words sampling = {"--prompt=abe", "--tokens=9", "--seed=3"};
  const Outcome written = run_orrery(Words{"generate", run} + sampling);
  CHECK(written.code == 0);
  CHECK(written.out == run_orrery(Words{"generate", checkpoint} + sampling).out);
  CHECK(written.out == run_orrery(Words{"generate"} + sampling + Words{run}).out);
  expect_error(run_orrery({"generate", checkpoint, run}), 2).names(run).offers("--prompt");
  CHECK(contains(run_orrery({"generate", "--help"}).out, "Usage: orrery generate RUN "));
  CHECK(contains(run_orrery({"evaluate", run, "--help"}).out, folder / "text.txt"));  // the run's data

  const std::string images = folder / "images";
  const Outcome seen = run_orrery({"train", "--model=resnet", "--width=4", "--data=" + shapes, "--batch_size=8",
                                   "--steps=2", "--evaluate_every=0", "--metrics=none", "--out=" + images});
  REQUIRE_MESSAGE(is_complete(seen), seen.err);
  const Outcome classified = run_orrery({"classify", images, shapes + "/val"});
  CHECK_MESSAGE(classified.code == 0, classified.err);
  CHECK(classified.out == run_orrery({"classify", "--checkpoint=" + images, shapes + "/val"}).out);
  CHECK(contains(last_line(seen.err), "   or   orrery classify " + images + " IMAGE"));
}

TEST_CASE("train: the last line names the next commands, quoted for a shell") {
  const Folder folder;
  const Outcome made = run_orrery(
      Words{"train", "--task=algorithmic", "--problem=copy(length=3)", "--out=" + (folder / "my run")} + tiny);
  REQUIRE_MESSAGE(is_complete(made), made.err);
  CHECK(last_line(made.err) == "next: orrery report '" + (folder / "my run") + "'");
}

TEST_CASE("color: errors, warnings and headers are colored on a terminal only") {
  const Folder folder;
  const std::string run = trained_run(folder, "run"), error = "\"$ORRERY\" tran; true",
                    table = "\"$ORRERY\" show '" + run + "'", warning = "OMP_NUM_THREADS=x \"$ORRERY\" list relu";
  const auto shown = run_on_terminal("export TERM=xterm; unset NO_COLOR; " + error + "; " + table + "; " + warning);
  if (!shown) return;
  CHECK(contains(shown->out, "\x1b[1;31morrery:\x1b[0m unknown command 'tran'"));
  CHECK(contains(shown->out, "\x1b[1mtensor "));
  CHECK(contains(shown->out, "\x1b[33mwarning:\x1b[0m OMP_NUM_THREADS"));
  for (const std::string setting : {"TERM=xterm NO_COLOR=1", "TERM=dumb"}) {
    CAPTURE(setting);
    const auto plain = run_on_terminal("export " + setting + "; " + error + "; " + table);
    CHECK(contains(plain->out, "orrery: unknown command 'tran'"));
    CHECK(contains(plain->out, "tensor "));
    CHECK(!contains(plain->out, "\x1b"));
  }
  const Outcome piped = run_shell("export TERM=xterm; " + error + "; " + table);
  CHECK(!contains(piped.out + piped.err, "\x1b"));
}

TEST_CASE("tables: on a terminal no line is longer than its width; columns that do not fit follow below") {
  const Folder folder;
  const std::string run = trained_run(folder, "run"), program = "stty cols 80 && NO_COLOR=1 \"$ORRERY\" ";
  REQUIRE(run_orrery(train_tiny(folder, "other", {"--attention=pointwise(relu)"})).code == 0);
  const auto width_of = [](const std::string& line) {  // characters of UTF-8
    return std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80 && c != '\r'; });
  };
  for (const std::string& words :
       Words{"inspect '" + run + "' --text=abeabe --analysis=all --patch_from=abdabe", "show '" + run + "'",
             "compare '" + run + "' '" + (folder / "other") + "'", "gradcheck rms", "list softmax",
             "generate '" + run + "' --tokens=4", "train --task=algorithmic --problem='copy(length=3)' --plan"}) {
    CAPTURE(words);
    const auto shown = run_on_terminal(program + words);
    if (!shown) return;
    CHECK_MESSAGE(shown->code == 0, shown->out);
    std::istringstream lines(shown->out);
    for (std::string line; std::getline(lines, line);) CHECK_MESSAGE(width_of(line) <= 80, line);
  }
  const std::string table = run_on_terminal(program + "gradcheck rms")->out, header = "  input ";
  const size_t first = table.find(header), second = table.find(header, first + 1);
  REQUIRE(second != table.npos);
  CHECK(contains(table.substr(first, second - first), "against reference"));
  CHECK(!contains(table.substr(first, second - first), "finite difference"));
  CHECK(contains(table.substr(second), "finite difference"));
  CHECK(contains(table.substr(second), "\r\n  weight "));  // the first column is repeated
  const std::string piped = run_orrery({"gradcheck", "rms"}).out;
  CHECK(contains(piped.substr(0, piped.find('\n', piped.find(header))), "finite difference"));
}

TEST_CASE("progress: a terminal shows a live line for work of more than two seconds, but not for shorter work") {
  const Folder folder;
  const std::string run = trained_run(folder, "run");
  const std::string program = "export TERM=xterm; timeout --foreground 4 \"$ORRERY\" ";
  const auto slow = run_on_terminal(program + "verify_resume '" + run + "' --steps=1000000");
  if (!slow) return;
  CHECK_MESSAGE(contains(slow->out, "\r\x1b[Ktraining until the interruption, 0:0"), slow->out);
  CHECK(!contains(run_on_terminal(program + "show '" + run + "'")->out, "\x1b[K"));
}

TEST_CASE("progress: a terminal shows how much of a long word is learned, and how much of a corpus is searched") {
  const Folder folder;
  std::string word;
  for (uint32_t drawn = 1; word.size() < 12'000'000; drawn = drawn * 1664525 + 1013904223)
    word += "etaoinsh"[(drawn >> 16) % 8];
  const std::string run = folder / "run", program = "export TERM=xterm; timeout --foreground 12 \"$ORRERY\" ",
                    tokenizer = " --tokenizer='byte_pair(vocabulary=4000)'";
  const auto learning = run_on_terminal(program + "prepare --input='" + folder.write("word.txt", word) + "'" +
                                        tokenizer + " --out='" + (folder / "tokens") + "'");
  if (!learning) return;
  CHECK_MESSAGE(contains(learning->out, "\r\x1b[Klearned "), learning->out);
  const std::string text = ORRERY_SOURCE_DIR "/examples/data/tinyshakespeare.txt";
  REQUIRE(is_complete(run_orrery({"train", "--data=" + text, "--layers=4", "--heads=2", "--width=64", "--context=512",
                                  "--batch_size=1", "--steps=1", "--metrics=none", "--validation_tokens=1000",
                                  "--training_loss_tokens=0", "--out=" + run})));
  const auto searching = run_on_terminal(program + "inspect '" + run + "' --text=First --analysis=neurons --corpus='" +
                                         text + "'");
  CHECK_MESSAGE(contains(searching->out, "\r\x1b[Kread the corpus "), searching->out);
}

TEST_CASE("threads: OMP_NUM_THREADS is the default") {
  const Folder folder;
  const auto threads = [&](const std::string& value, const Words& more = {}) {
    std::string command = "OMP_NUM_THREADS='" + value + "' \"$ORRERY\"";
    for (const std::string& word : train_tiny(folder, "run" + std::to_string(more.size()) + value, more))
      command += " '" + word + "'";
    const Outcome outcome = run_shell(command);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    return outcome.err;
  };
  CHECK(contains(threads("3"), "; 3 threads\n"));
  CHECK(contains(threads("4,2"), "; 4 threads\n"));
  CHECK(contains(threads("3", {"--threads=1"}), "; 1 thread\n"));
  for (const char* wrong : {"many", "0", "-1", "5000"}) {
    CAPTURE(wrong);
    Message(threads(wrong)).names("warning").names("OMP_NUM_THREADS").value(wrong).value("ignored");
  }
  CHECK(contains(run_orrery({"generate", "--help"}).out, "OMP_NUM_THREADS"));
}

TEST_CASE("pipes: texts are read from standard input and from pipes") {
  const Folder folder;
  const std::string run = trained_run(folder, "run"), pipe = folder / "pipe",
                    generate = "\"$ORRERY\" generate '" + run + "' --tokens=9 --seed=3 ";
  const std::string written = run_shell(generate + "--prompt=abe").out;
  CHECK(written.starts_with("abe"));
  for (const std::string& from :
       {"printf abe | " + generate + "--prompt=-", "printf abe | " + generate + "--start=-",
        "printf abe | gzip | " + generate + "--start=FILE:-",
        "mkfifo " + pipe + "; printf abe > " + pipe + " & " + generate + "--start=FILE:" + pipe}) {
    CAPTURE(from);
    const Outcome outcome = run_shell(from);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    CHECK(outcome.out == written);
  }
  const std::string inspect = "\"$ORRERY\" inspect '" + run + "' --analysis=heads ";
  CHECK(run_shell("printf abeabe | " + inspect + "--text=-").out == run_shell(inspect + "--text=abeabe").out);
  const Outcome closed = run_shell(generate + "--prompt=- <&-");
  expect_error(closed, 1).names("the standard input");
  const Outcome endless = run_shell("yes | " + generate + "--prompt=-");
  expect_error(endless, 1).names("the standard input").value(16777216).offers("shorter");
}
