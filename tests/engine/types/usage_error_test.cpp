// Usage errors: where they arise, and what they become in files.
#include "engine/types/usage_error.h"

#include <doctest/doctest.h>

#include "engine/settings/config.h"
#include "engine/settings/registry.h"

using namespace orrery;

namespace {

struct Settings {
  int64_t batch = 12;
  std::string device = "cpu";
  Spec attention = parse_spec("softmax");
  template <class V>
  void visit(V& v) {
    v("batch", batch, "sequences", at_least(1));
    v("device", device, "cpu or cuda", one_of({"cpu", "cuda"}));
    v("attention", attention, "attention");
  }
};

struct Entry {
  std::string name;
};

}  // namespace

TEST_CASE("usage error: an unknown setting, a wrong value and a value out of its range are usage errors") {
  Settings settings;
  const std::pair<const char*, const char*> wrong[] = {
      {"batches", "1"}, {"batch", "many"}, {"batch", "0"}, {"device", "tpu"}, {"attention", "softmax("}};
  for (const auto& [key, value] : wrong) {
    const std::string setting = key;
    CAPTURE(setting);
    CHECK_THROWS_AS(set_setting(settings, "train", key, value), UsageError);
  }
  CHECK_THROWS_AS(read_settings(parse_spec("name(0)"), settings), UsageError);
  CHECK_THROWS_AS(read_settings(parse_spec("name(1, cpu, softmax, 4)"), settings), UsageError);
  set_setting(settings, "train", "batch", "3");
  CHECK(settings.batch == 3);
}

TEST_CASE("usage error: an unknown name is a usage error") {
  Registry<Entry> entries("attention");
  entries.add({"softmax"});
  CHECK_THROWS_AS(entries.at("sofmax"), UsageError);
}

TEST_CASE("usage error: a failure of the machine stays one") {
  CHECK_THROWS_AS(as_usage([] { throw MachineError("allocate: out of memory"); }), MachineError);
  CHECK_THROWS_AS(as_usage([] { throw Error("batch: 0"); }), UsageError);
}

TEST_CASE("usage error: a wrong setting in a file is an error of the file") {
  Settings settings;
  const auto set = [&] { set_setting(settings, "train", "batch", "0"); };
  bool is_usage = true;
  try {
    as_content(set);
  } catch (const UsageError&) {
  } catch (const Error& error) {
    is_usage = false;
    CHECK(std::string(error.what()).find("batch") != std::string::npos);
  }
  CHECK(!is_usage);
  CHECK_THROWS_AS(as_usage([] { fail("heads: 7"); }), UsageError);
  CHECK(as_usage([] { return 7; }) == 7);
}
