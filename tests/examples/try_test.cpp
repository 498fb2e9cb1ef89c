// orrery try and --plugin: what a person who writes one formula file meets.
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/examples/program.h"

namespace fs = std::filesystem;

namespace {

std::string activation(const std::string& name, const std::string& slope) {
  return "#include \"nn/activation_kernels.h\"\nnamespace {\nstruct Mine {\n"
         "  static inline const orrery::nn::ActivationInfo info{.name = \"" +
         name +
         "\", .formula = \"x / (1 + x^2)\", .source = \"a test\", .limits = {0, 0}};\n"
         "  template <class T> HOST_DEVICE T value(T x) const { return x / (1 + x * x); }\n"
         "  template <class T> HOST_DEVICE T derivative(T x) const { const T d = 1 + x * x; return " +
         slope + "; }\n};\nREGISTER_ACTIVATION(Mine);\n}  // namespace\n";
}
const char* const right_slope = "(1 - x * x) / (d * d)";

}  // namespace

TEST_CASE("try compiles a formula file, shows it, checks it, plots it and trains with it in its three roles") {
  const Folder folder;
  const std::string file = folder.write("bump.cpp", activation("bump", right_slope));
  const Outcome tried = run_orrery({"try", file, "--out=" + (folder / "plugins"), "--steps=30"});
  INFO(tried.out, tried.err);
  CHECK(tried.code == 0);
  for (const char* part :
       {"x / (1 + x^2)", "activation bump", "passed", "derivative", "gelu, softmax, layer",
        "feed_forward = dense(bump)", "attention = pointwise(bump)", "normalization = dynamic(bump)", "--plugin="})
    CHECK(contains(tried.out, part));

  const std::string plugin = folder / "plugins/bump.so";
  REQUIRE(fs::exists(plugin));
  CHECK(contains(run_orrery({"list", "bump", "--plugin=" + plugin}).out, "x / (1 + x^2)"));
  CHECK(run_orrery({"--plugin", plugin, "gradcheck", "bump"}).code == 0);
  const Outcome without = run_orrery({"list", "bump"});
  CHECK(without.code == 1);

  // The same plug-in twice: its name is taken the second time.
  fs::copy_file(plugin, folder / "again.so");
  const Outcome twice = run_orrery({"list", "--plugin=" + plugin, "--plugin=" + (folder / "again.so")});
  CHECK(twice.code == 1);
  CHECK(contains(twice.err, "activation: 'bump' is registered twice"));

  // One that was built for other headers.
  std::string bytes = read_file(plugin);
  const size_t mark = bytes.find("orrery plug-in for ");
  REQUIRE(mark != std::string::npos);
  bytes[bytes.find(' ', mark + 19) + 1] ^= 1;
  const Outcome old = run_orrery({"list", "--plugin=" + folder.write("old.so", bytes)});
  CHECK(old.code == 1);
  CHECK(contains(old.err, "was built for orrery 0.1.0 "));
  CHECK(contains(old.err, "build it again with orrery try"));
}

TEST_CASE("try exits 1 and names the check if a derivative is wrong") {
  const Folder folder;
  const std::string file = folder.write("wrong.cpp", activation("wrong_bump", "(1 + x * x) / (d * d)"));
  const Outcome tried = run_orrery({"try", file, "--out=" + (folder / "plugins"), "--steps=0"});
  CHECK(tried.code == 1);
  CHECK(contains(tried.out, "FAILED: gradcheck of wrong_bump"));
}

TEST_CASE("try refuses a file that does not compile, with the compiler's first error") {
  const Folder folder;
  const std::string file = folder.write("broken.cpp", activation("broken", "no_such_name"));
  const Outcome tried = run_orrery({"try", file, "--out=" + (folder / "plugins")});
  CHECK(tried.code == 1);
  CHECK(contains(tried.err, "does not compile: "));
  CHECK(contains(tried.err, "no_such_name"));
  CHECK(!fs::exists(folder / "plugins/broken.so"));
}

TEST_CASE("try refuses a file that registers nothing, a name that is taken, and what is no file") {
  const Folder folder;
  const auto error_of = [&](const std::string& file) {
    const Outcome tried = run_orrery({"try", file, "--out=" + (folder / "plugins"), "--steps=0"});
    CHECK(tried.code == 1);
    return tried.err;
  };
  CHECK(contains(error_of(folder.write("nothing.cpp", "int x;\n")), "registers nothing"));
  CHECK(contains(error_of(folder.write("taken.cpp", activation("relu", right_slope))),
                 "activation: 'relu' is registered twice"));
  CHECK(contains(error_of(folder / "absent.cpp"), "there is no file"));
  const Outcome no_file = run_orrery({"list", "--plugin=" + (folder / "absent.so")});
  CHECK(contains(no_file.err, "plugin: cannot read"));
  const Outcome no_plugin = run_orrery({"list", "--plugin=" + folder.write("text.so", "hello")});
  CHECK(contains(no_plugin.err, "is not a plug-in of orrery"));
}

TEST_CASE("an attention in one file goes through try as well") {
  const Folder folder;
  const Outcome tried =
      run_orrery({"try", ORRERY_SOURCE_DIR "/examples/04_new_attention.cpp", "--out=" + (folder / "p"), "--steps=10"});
  INFO(tried.out, tried.err);
  CHECK(tried.code == 0);
  CHECK(contains(tried.out, "attention = taylor"));
}
