// A test program for tests/mutation.sh: its tests are doctest cases and registered gradient cases.
//   PROGRAM --trace        "known SITE...", per test "test SECONDS PASSED NAME", "reached SITE..."
//   PROGRAM --run NAME...  these tests, until one fails: prints its name and exits 1
// SECONDS are CPU time; after ORRERY_SECONDS of it a signal ends the program.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include "nn/base/gradient_case.h"
#include "tests/mutation/mutant.h"

namespace {

using namespace orrery;

struct Listener final : doctest::IReporter {  // collects the names of the cases
  explicit Listener(const doctest::ContextOptions&) {}
  static inline std::set<std::string> names;
  void report_query(const doctest::QueryData& in) override {
    for (unsigned i = 0; i < in.num_data; ++i) names.insert(in.data[i]->m_name);
  }
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};
REGISTER_REPORTER("names", 1, Listener);

// A comma separates filters, a question mark stands for any character.
std::string as_filter(std::string name) {
  for (char& c : name)
    if (c == ',') c = '?';
  return name;
}

bool run_case(const std::string& name) {
  doctest::Context context;
  context.addFilter("test-case", as_filter(name).c_str());
  context.setOption("case-sensitive", true);
  context.setOption("abort-after", 1);
  context.setOption("minimal", true);
  context.setOption("out", "/dev/null");
  return context.run() == 0;
}

const std::string prefix = "gradient case ";

std::string name_of(size_t i) {
  const nn::RegisteredCase& c = nn::gradient_cases()[i];
  return prefix + std::to_string(i) + ": " + c.family + " " + c.name;
}

bool run(const std::string& name) {
  if (!name.starts_with(prefix)) return run_case(name);
  const size_t i = std::stoul(name.substr(prefix.size()));
  try {
    for (const uint64_t seed : {0, 1})
      if (!check_gradients(nn::make_case(nn::gradient_cases().at(i), seed)).passed) return false;
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

void print_sites(const char* title, const unsigned char* sites) {
  std::printf("%s", title);
  for (int i = 0; i < mutants::site_limit; ++i)
    if (sites[i]) std::printf(" %d", i);
  std::printf("\n");
}

// Returns the seconds of the processor that this program and its finished children took.
double seconds_so_far() {
  double seconds = 0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage use;
    getrusage(who, &use);
    for (const timeval& time : {use.ru_utime, use.ru_stime})
      seconds += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  }
  return seconds;
}

void trace() {
  print_sites("known", mutants::known);
  {
    const char* const arguments[] = {"", "--reporters=names", "--list-test-cases"};  // setOption knows no such flag
    doctest::Context context(3, arguments);
    context.run();
    if (Listener::names.empty()) std::exit(2);
  }
  std::vector<std::string> names;
#ifdef WITH_GRADIENT_CASES
  for (size_t i = 0; i < nn::gradient_cases().size(); ++i) names.push_back(name_of(i));
#endif
  names.insert(names.end(), Listener::names.begin(), Listener::names.end());
  for (const std::string& name : names) {
    std::memset(mutants::reached, 0, mutants::site_limit);
    const double begin = seconds_so_far();
    const bool passed = run(name);
    std::printf("test %.4f %d %s\n", seconds_so_far() - begin, passed, name.c_str());
    print_sites("reached", mutants::reached);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (const char* const seconds = std::getenv("ORRERY_SECONDS")) {
    const auto limit = static_cast<rlim_t>(std::atoi(seconds));
    const rlimit both{limit, limit + 5};
    setrlimit(RLIMIT_CPU, &both);
  }
  if (count == 2 && std::strcmp(arguments[1], "--trace") == 0) {
    trace();
    return 0;
  }
  for (int i = 2; i < count; ++i)
    if (!run(arguments[i])) {
      std::printf("%s\n", arguments[i]);
      return 1;
    }
  return count > 2 ? 0 : 2;
}
