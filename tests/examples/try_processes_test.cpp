// orrery try as a process: odd paths, the end of its compiler, and plug-ins that call exit.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <thread>

#include "tests/examples/activation_source.h"
#include "tests/examples/program.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using orrery::testing::expect_error;

namespace {

// Returns the number of processes with this text in their arguments.
size_t processes_with(const std::string& text) {
  size_t found = 0;
  for (const auto& entry : fs::directory_iterator("/proc"))
    found += contains(read_file(entry.path() / "cmdline"), text);
  return found;
}
bool soon(const std::function<bool()>& holds) {
  for (int i = 0; i < 600; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(50)))
    if (holds()) return true;
  return false;
}

// Writes a source that never compiles to the end: it includes a pipe without a writer.
std::string endless_source(const Folder& folder) {
  REQUIRE(::mkfifo((folder / "pipe.h").c_str(), 0600) == 0);
  return folder.write("endless.cpp", "#include \"pipe.h\"\n");
}

}  // namespace

TEST_CASE("try: paths of the source, the headers and the plug-in may contain any character") {
  const Folder folder;
  const std::string odd = folder / "it's $(touch pwned) `touch pwned`; \"q\" \\ \n #*?& %s \x01\x02\xff\xfe";
  fs::create_directories(odd);
  fs::create_directory_symlink(ORRERY_SOURCE_DIR, odd + "/tree's");
  const std::string source = odd + "/-bump's @x.cpp", plugins = odd + "/plug-in's";
  fs::copy_file(folder.write("bump.cpp", activation("bump", right_derivative)), source);
  const Outcome tried = run_orrery({"try", source, "--headers=" + odd + "/tree's", "--out=" + plugins, "--steps=0"});
  INFO(tried.out, tried.err);
  CHECK(tried.code == 0);
  CHECK(fs::exists(plugins + "/-bump's @x.so"));
  const auto files = fs::directory_iterator(plugins);  // the plug-in and its checksum file
  CHECK(std::distance(files, fs::directory_iterator()) == 2);
  CHECK(!fs::exists("pwned"));
  CHECK(run_orrery({"list", "bump", "--plugin=" + plugins + "/-bump's @x.so"}).code == 0);
}

TEST_CASE("try: the training text is that in the folder of the given headers") {
  const Folder folder;
  const std::string tree = folder / "tree", text = tree + "/examples/data/tinyshakespeare.txt";
  fs::create_directories(tree + "/examples/data");
  for (const char* headers : {"engine", "nn", "models"})
    fs::create_directory_symlink(ORRERY_SOURCE_DIR + std::string("/") + headers, tree + "/" + headers);
  folder.write("tree/examples/data/tinyshakespeare.txt", "text that is not UTF-8: \xff\n");
  const std::string source = folder.write("bump.cpp", activation("bump", right_derivative));
  const Outcome tried = run_orrery({"try", source, "--headers=" + tree, "--out=" + (folder / "plugins"), "--steps=1"});
  expect_error(tried).names(text).value("UTF-8");
}

TEST_CASE("try: arguments that begin with @, - or =, or lack the extension of a source, are file names") {
  const Folder folder;
  for (const char* name : {"@x.cpp", "-x.cpp", "-hat.cpp", "=x.cpp", "-o", "x.o", "x.so", "x"}) {
    CAPTURE(name);
    folder.write(name, "#error the compiler was here\n");
    const Outcome tried = run_shell("cd '" + folder.path() + "' && \"$ORRERY\" try '" + name + "' --out=@-p");
    expect_error(tried).names("try").names(name).value("the compiler was here");
  }
  expect_error(run_orrery({"try", "-help.cpp"})).names("try").names("-help.cpp").offers("--help");
  folder.write("x.cpp", "x.o\n");  // as a response file it would name another source
  const Outcome no_headers = run_shell("cd '" + folder.path() + "' && \"$ORRERY\" try x.cpp --headers=@x.cpp");
  expect_error(no_headers).names("@x.cpp").offers("engine");
}

TEST_CASE("try: the compiler and its child processes end together with the program") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGKILL}) {
    CAPTURE(signal);
    const Folder folder;
    const std::string source = endless_source(folder);
    RunningOrrery orrery({"try", source, "--out=" + (folder / "p")});
    // orrery, its guard, the compiler's driver, and the compiler proper
    CHECK(soon([&] { return processes_with(source) >= 4; }));
    CHECK(::kill(orrery.process(), signal) == 0);
    CHECK(orrery.end().code == 128 + signal);
    CHECK(soon([&] { return processes_with(source) == 0; }));
  }
}

TEST_CASE("try: a compiler that exceeds compile_limit is stopped") {
  const Folder folder;
  const std::string source = endless_source(folder);
  const auto start = std::chrono::steady_clock::now();
  const Outcome tried = run_orrery({"try", source, "--out=" + (folder / "p"), "--compile_limit=1"});
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
  expect_error(tried).names("try").value("1").offers("--compile_limit");
  CHECK(processes_with(source) == 0);
  CHECK(fs::is_empty(folder / "p"));
  CHECK(contains(run_orrery({"try", "--help"}).out, "--compile_limit"));
}

TEST_CASE("plug-in: a call of exit does not end a command with success") {
  const Folder folder;
  for (const char* name : {"exit", "quick_exit", "_Exit", "_exit"}) {
    CAPTURE(name);
    const std::string headers = "#include <stdlib.h>\n#include <unistd.h>\n",
                      call = "static const int gone = (::" + std::string(name) + "(0), 0);\n",
                      source = folder.write(std::string(name) + ".cpp", headers + call);
    expect_error(run_orrery({"try", source, "--out=" + folder.path()})).names("plug-in").value("exit");
    const std::string plugin = folder / name + ".so";
    REQUIRE(fs::exists(plugin));
    for (const char* command : {"list", "--version", "--help"})
      expect_error(run_orrery({command, "--plugin=" + plugin})).names("plug-in").value("exit");
  }
}

TEST_CASE("plug-in: a call of exit at the end of the program does not change its exit code") {
  const Folder folder;
  for (const char* name : {"exit", "quick_exit", "_Exit"}) {
    CAPTURE(name);
    const std::string source = folder.write(
        std::string(name) + ".cpp", "#include <cstdlib>\n" + activation(std::string("bump") + name, right_derivative) +
                                        "struct Gone { ~Gone() { std::" + name + "(0); } } gone;\n");
    const Outcome tried = run_orrery({"try", source, "--out=" + folder.path(), "--steps=0"});
    CHECK_MESSAGE(tried.code == 0, tried.err);
    const std::string plugin = "--plugin=" + (folder / name + ".so");
    expect_error(run_orrery({"show", folder / "none", plugin})).names(folder / "none");
    CHECK(run_orrery({"list", std::string("bump") + name, plugin}).code == 0);
  }
}

TEST_CASE("plug-in: a file that is given twice is loaded once") {
  const Folder folder;
  const std::string source = folder.write("bump.cpp", activation("bump", right_derivative));
  REQUIRE(run_orrery({"try", source, "--out=" + folder.path(), "--steps=0"}).code == 0);
  const std::string plugin = "--plugin=" + (folder / "bump.so");
  CHECK(run_orrery({"list", "bump", plugin, plugin}).code == 0);
}
