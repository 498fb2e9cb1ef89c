// random_settings N [SEED]: trains N random combinations of all registered names and numbers,
// two steps each on a small text. Half of the draws have mild numbers; the others have ends of
// ranges, values beyond them, and invalid numbers. A draw must train to finite losses, or be
// refused with one message that names a setting, in under five seconds of work; to train may take
// twenty (4,096 layers do). Any other outcome is printed, and the exit code is 1. The last line counts
// the outcomes.
// A process forked from this one runs each draw; this one never computes. So the program does not
// start 10,000 times, and a crash ends only one draw.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <random>

#include "engine/system/parallel.h"
#include "models/training/trainer.h"
#include "nn/attentions/base/attention.h"
#include "nn/feed_forwards/base/feed_forward.h"
#include "nn/formulas/activation.h"
#include "nn/normalizations/base/normalization.h"
#include "nn/positions/base/position.h"

namespace {

using namespace orrery;
using Assignments = std::vector<std::pair<std::string, std::string>>;
using Clock = std::chrono::steady_clock;

constexpr double max_seconds[] = {5, 20};          // seconds of work of one draw: refused, trained
constexpr int64_t draw_memory = int64_t{1} << 30;  // bytes that a draw may use; larger ones are refused
constexpr std::chrono::seconds time_limit(60);  // limit for a draw that does not end; other work may use the processor
constexpr const char* folder_of_runs = "random_settings";

// ---- draws

class Draw {
 public:
  Draw(uint64_t seed, uint64_t number)
      : random_(seed * 1'000'003 + number), mild_(number % 2 == 0), within_(number % 4 == 1) {}

  Assignments assignments(const std::string& text, const std::string& out) {
    Assignments all = {{"layers", "1"},     {"heads", "2"}, {"width", "8"},          {"context", "8"},
                       {"batch_size", "2"}, {"steps", "2"}, {"evaluate_every", "0"}, {"threads", "1"}};
    static const std::vector<Setting> known = settings_without_values<models::TrainSettings>();
    const bool alone = !mild_ && chance(0.02);
    for (const Setting& setting : known) {
      // Settings of a resumed run fit no other run.
      static const std::vector<std::string> not_drawn = {
          "model",          "task",   "data",   "validation_data", "out", "steps", "resume", "resume_from_previous",
          "allow_new_text", "device", "profile"};
      if (setting.key.empty() || std::count(not_drawn.begin(), not_drawn.end(), setting.key)) continue;
      // With another maximum it takes hours, which a user may want: it is drawn alone.
      const bool repeats = setting.key == "gradient_accumulation_steps";
      if (!mild_ && repeats != alone) continue;
      const bool name = std::holds_alternative<Spec*>(setting.value);
      const bool seldom = setting.key == "cuda_graph" || setting.key == "init_from" || setting.key == "documents" ||
                          setting.key == "gradient_parts" || setting.key.starts_with("losses.");  // mostly refused
      if (alone || chance(name ? 0.5 : seldom ? 0.03 : 0.15)) all.emplace_back(setting.key, value(setting, 0));
    }
    all.emplace_back("data", text), all.emplace_back("out", out);
    return all;
  }

 private:
  bool chance(double probability) { return std::uniform_real_distribution<>(0, 1)(random_) < probability; }
  template <class T>
  const T& one_of(const std::vector<T>& all) {
    return all[std::uniform_int_distribution<size_t>(0, all.size() - 1)(random_)];
  }

  std::string value(const Setting& setting, int depth) {
    const Limits& limits = setting.limits;
    if (std::holds_alternative<bool*>(setting.value)) return one_of<std::string>({"yes", "no"});
    if (std::holds_alternative<int64_t*>(setting.value)) return number(setting.key, limits, true);
    if (std::holds_alternative<double*>(setting.value)) return number(setting.key, limits, false);
    if (std::holds_alternative<LearnableNumber*>(setting.value)) {
      const std::string x = number(setting.key, limits, false);
      return chance(0.5) ? x : "learned(" + x + ")";
    }
    if (std::holds_alternative<Spec*>(setting.value)) return spec(setting, depth);
    if (!mild_ && chance(0.1)) return "nonsense";
    return limits.choices.empty() ? free_text(setting.key) : one_of(limits.choices);
  }

  std::string free_text(const std::string& key) {
    static const std::map<std::string, std::vector<std::string>> known = {
        {"tokenizer", {"character", "byte"}},
        {"metrics", {"default", "all", "none", "entropy, residual_rms"}},
        {"mask", {"causal", "full", "causal and window(3)", "causal or prefix(2)", "sinks(1) and ("}},
        {"decoder_mask", {"causal", "causal and dilated(2)"}},
        {"lr_scales", {"*.bias=2", "blocks.0.*=0.5, *.weight=0", "nothing=1"}},
        {"weight_decay_rules", {"*.weight=no", "*norm*.weight=yes, head.*=no", "nothing=yes"}}};
    const auto found = known.find(key);
    return found == known.end() ? "nonsense" : one_of(found->second);
  }

  std::string number(const std::string& key, const Limits& limits, bool whole) {
    if (mild_ || chance(0.7)) return mild_number(key, limits, whole);
    static const std::vector<std::string> absurd = {"0",
                                                    "-1",
                                                    "1",
                                                    "2147483647",
                                                    "2147483648",
                                                    "4294967296",
                                                    "4611686018427387904",
                                                    "2305843009213693952",
                                                    "9223372036854775807",
                                                    "9223372036854775808",
                                                    "-9223372036854775808",
                                                    "1e18",
                                                    "1e10",
                                                    "1e300",
                                                    "-1e300",
                                                    "nan",
                                                    "inf",
                                                    "-inf",
                                                    "4.9e-324",
                                                    "1e-310",
                                                    "1e-45",
                                                    "-0.0",
                                                    "0.5",
                                                    "1e400",
                                                    "seven",
                                                    "1e6"};
    const double smallest = limits.smallest_magnitude;
    const std::vector<double> ends = {limits.low,   limits.high,     smallest,
                                      smallest * 2, limits.high / 2, limits.low + smallest},
                              beyond = {limits.low - 1, limits.high + 1, -limits.high};
    if (within_ || chance(0.4)) {
      const double x = one_of(ends);
      return print_number(whole ? std::floor(x) : x);
    }
    return chance(0.7) ? one_of(absurd) : print_number(one_of(beyond));
  }
  std::string mild_number(const std::string& key, const Limits& limits, bool whole) {
    static const std::map<std::string, std::vector<std::string>> known = {{"layers", {"1", "2", "3"}},
                                                                          {"heads", {"1", "2", "4"}},
                                                                          {"width", {"8", "16"}},
                                                                          {"context", {"4", "8", "16"}},
                                                                          {"batch_size", {"1", "2", "5"}},
                                                                          {"vocabulary", {"0", "50"}},
                                                                          {"groups", {"1", "2", "4"}},
                                                                          {"S", {"4", "8"}},
                                                                          {"R", {"1", "2"}},
                                                                          {"learning_rate", {"1e-3"}},
                                                                          {"length", {"1", "8"}},
                                                                          {"validation_fraction", {"0.1", "0.2"}},
                                                                          {"epsilon", {"1e-5"}},
                                                                          {"iterations", {"1", "5"}},
                                                                          {"base", {"100", "1e4"}}};
    if (const auto found = known.find(key); found != known.end()) return one_of(found->second);
    const double low = std::max(limits.low, -1.0), high = std::min(limits.high, whole ? 12.0 : 1.0);
    const double x = low + (high - low) * std::uniform_real_distribution<>(0.1, 0.9)(random_);
    return print_number(whole ? std::round(x) : std::round(x * 1e3) / 1e3);
  }

  std::string spec(const Setting& setting, int depth) {
    const std::string& key = setting.key;
    if (!mild_ && chance(0.03)) return one_of<std::string>({"nonsense", "((", "a(b", "7", "none(1)"});
    if (key == "attention") return member(nn::attentions(), depth);
    if (key == "feed_forward") return member(nn::feed_forwards(), depth);
    if (key == "position") return member(nn::positions(), depth);
    if (key == "schedule") return member(nn::schedules(), depth);
    if (key == "optimizer") return member(nn::optimizers(), depth);
    if (key.ends_with("_normalization") && chance(0.5)) return "same";
    if (key.ends_with("normalization")) return member(nn::normalizations(), depth);
    if (key == "initialization")
      return one_of<std::string>({number("std", between(1e-6, 1e3), false), "inverse_sqrt_width",
                                  "normal(inverse_sqrt_width)", "fixup(0.1)", "relu_revival", "adaptive_span", "fan_in",
                                  "relu_vision", "relu_former"});
    if (key == "embedding_scale")
      return one_of<std::string>(
          {"none", "sqrt_width", "learned", "learned(" + number("", between(1e-6, 1e6), false) + ")"});
    if (key == "qk_norm") return chance(0.3) ? "none" : member(nn::normalizations(), depth);
    if (key == "activation" || key == "function" || (key == "gate" && chance(0.7))) return activation();
    if (key == "S") return chance(0.5) ? "context" : number("S", between(1, 16777216), true);
    if (key == "length")
      return one_of<std::string>({"keys_visible", "row_index", "padded_length",
                                  "fixed(" + number("length", between(1, 16777216), true) + ")"});
    if (key == "lr_scales") return chance(0.5) ? "none" : "groups(spans=" + number("", between(0, 1e6), false) + ")";
    if (key == "persistent" && chance(0.3)) return number("N", between(1, 65536), true);
    if (key == "span" || key == "persistent") return setting_of_attention(key);
    return "none";
  }
  std::string setting_of_attention(const std::string& key) {
    std::vector<nn::Info> fitting;
    for (const nn::Info& info : nn::attention_settings())
      if (info.ranges && (info.name == "slots") == (key == "persistent")) fitting.push_back(info);
    const nn::Info& info = one_of(fitting);
    return with_items(std::string(info.name), info.ranges(), 1, 1);
  }
  std::string activation() {
    const std::string name = one_of(chance(0.9) ? nn::activation_names() : nn::learned_activation_names());
    return with_items(name, nn::ranges_of_activation(name), 1, 0.5);
  }
  template <class Registry>
  std::string member(const Registry& registry, int depth) {
    const std::string name = one_of(registry.names());
    const auto& entry = registry.at(name);
    if (!entry.ranges || depth > 2) return name;
    return with_items(name, entry.ranges(), depth + 1, 0.25);
  }
  std::string with_items(const std::string& name, const std::vector<Setting>& settings, int depth, double probability) {
    std::vector<std::string> items;
    for (const Setting& setting : settings)
      if (!setting.key.empty() && chance(probability)) items.push_back(setting.key + "=" + value(setting, depth));
    return items.empty() ? name : name + "(" + join(items) + ")";
  }

  std::mt19937_64 random_;
  bool mild_, within_;  // within: ends of ranges, but no values beyond
};

// ---- one draw

// Trains as the program does, and returns its exit code; an error message goes to `output`.
int train(const Assignments& assignments, std::string& output) try {
  set_memory_limit(Device::cpu, draw_memory);
  models::Trainer trainer(models::make_settings(assignments));
  bool finite = true;
  models::TrainingEvents events;
  events.step = [&](const models::StepReport& report) {
    finite = finite && std::isfinite(report.loss) && std::isfinite(report.gradient_norm);
  };
  const double loss = trainer.run(events).validation_loss;
  if (finite && std::isfinite(loss)) return 0;
  output = "a loss is not finite, but training reported no error";
  return 3;
} catch (const Error& error) {
  output = error.what();
  return 1;
} catch (const std::exception& error) {
  output = text("unexpected exception: ", error.what());
  return 3;
}

struct Outcome {
  std::string output, fault;  // fault: empty if the draw ended correctly
  bool trained = false;
};

struct Running {
  uint64_t number;
  Assignments assignments;
  int pipe;
  Clock::time_point began;
};

std::string seconds_text(double seconds) { return text(std::round(seconds * 10) / 10, " s"); }

bool names_a_setting(const std::string& output, const Assignments& assignments) {
  const auto known = [&](const Setting& setting) {
    return !setting.key.empty() && output.find(setting.key) != std::string::npos;
  };
  static const std::vector<Setting> settings = settings_without_values<models::TrainSettings>();
  if (std::any_of(settings.begin(), settings.end(), known)) return true;
  for (const auto& [key, value] : assignments)  // softmax(scale=-1) is refused by "softmax: scale: ..."
    if (output.find(value.substr(0, value.find('('))) != std::string::npos) return true;
  return false;
}

Outcome classify(const Running& draw, int status, const rusage& use, bool late) {
  Outcome outcome;
  char chunk[4096];
  for (ssize_t n = 0; (n = read(draw.pipe, chunk, sizeof chunk)) > 0;)
    outcome.output.append(chunk, static_cast<size_t>(n));
  close(draw.pipe);
  const auto time = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  const double seconds = time(use.ru_utime) + time(use.ru_stime);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (late)
    outcome.fault = "did not end";
  else if (WIFSIGNALED(status))
    outcome.fault = text("ended by signal ", WTERMSIG(status));
  else if (code != 0 && code != 1)
    outcome.fault = outcome.output.empty() ? text("exit ", code) : outcome.output;
  else if (seconds > max_seconds[code == 0])
    outcome.fault = text("took ", seconds_text(seconds), " of work");
  else if (code == 1 && (outcome.output.empty() || outcome.output.find('\n') != std::string::npos))
    outcome.fault = "not one sentence";
  else if (code == 1 && !names_a_setting(outcome.output, draw.assignments))
    outcome.fault = "names no setting";
  outcome.trained = code == 0;
  return outcome;
}

// ---- all draws

class Trial {
 public:
  Trial(uint64_t seed, std::string folder, bool all) : seed_(seed), folder_(std::move(folder)), all_(all) {
    std::filesystem::create_directories(folder_);
    text_ = folder_ + "/text.txt";
    std::ofstream out(text_);
    for (int i = 0; i < 600; ++i) out << static_cast<char>(i % 29 == 28 ? ' ' : 'a' + i * i % 26);
  }
  ~Trial() { std::filesystem::remove_all(folder_); }
  Trial(const Trial&) = delete;

  int run(uint64_t first, uint64_t count) {
    const size_t at_once = std::max(1, thread_count());
    for (uint64_t i = first; i < first + count; ++i) {
      start(i);
      while (running_.size() >= at_once) wait_for_one();
    }
    while (!running_.empty()) wait_for_one();
    std::cout << count << " draws: " << trained_ << " trained, " << refused_ << " refused, " << others_ << " others"
              << std::endl;
    return others_ > 0;
  }

 private:
  void start(uint64_t number) {
    const std::string out = text(folder_, "/", number);
    Running draw{number, Draw(seed_, number).assignments(text_, out), -1, Clock::now()};
    int ends[2];
    check(pipe(ends) == 0, "settings at random: no pipe");
    const pid_t child = fork();
    check(child >= 0, "settings at random: no process");
    if (child == 0) {
      std::string output;
      const int code = train(draw.assignments, output);
      [[maybe_unused]] const ssize_t written = write(ends[1], output.data(), std::min<size_t>(output.size(), 60'000));
      _exit(code);
    }
    close(ends[1]);
    draw.pipe = ends[0];
    running_[child] = std::move(draw);
  }

  void wait_for_one() {
    for (;;) {
      for (auto at = running_.begin(); at != running_.end(); ++at) {
        const bool late = Clock::now() - at->second.began > time_limit;
        if (late) kill(at->first, SIGKILL);
        int status = 0;
        rusage use{};
        if (wait4(at->first, &status, late ? 0 : WNOHANG, &use) != at->first) continue;
        count(at->second, classify(at->second, status, use, late));
        running_.erase(at);
        return;
      }
      usleep(500);
    }
  }

  void count(const Running& draw, const Outcome& outcome) {
    (!outcome.fault.empty() ? others_ : outcome.trained ? trained_ : refused_)++;
    std::filesystem::remove_all(text(folder_, "/", draw.number));
    if (outcome.fault.empty() && !all_) return;
    std::cout << "draw " << draw.number << ": " << (outcome.fault.empty() ? "" : "FAULT: " + outcome.fault + "; ")
              << (outcome.trained ? "trained" : outcome.output) << "\n   ";
    for (const auto& [key, value] : draw.assignments) std::cout << " '--" << key << "=" << value << "'";
    std::cout << std::endl;
  }

  uint64_t seed_;
  std::string folder_, text_;
  bool all_;
  std::map<pid_t, Running> running_;
  uint64_t trained_ = 0, refused_ = 0, others_ = 0;
};

}  // namespace

// N [SEED [FIRST]]: with FIRST, draws begin there and each is printed with its outcome.
int main(int count, char** words) try {
  const std::vector<std::string> given(words + 1, words + count);
  check(!given.empty(), "usage: random_settings N [SEED [FIRST]]");
  const auto number = [&](size_t i, int64_t otherwise) {
    return static_cast<uint64_t>(i < given.size() ? parse_whole_number("settings at random", given[i]) : otherwise);
  };
  namespace fs = std::filesystem;
  const fs::path ram_folder = "/dev/shm";  // other tests cover fsync on a disk
  const fs::path base = access(ram_folder.c_str(), W_OK) == 0 ? ram_folder : fs::temp_directory_path();
  Trial trial(number(1, 1), (base / text(folder_of_runs, "-", getpid())).string(), given.size() > 2);
  return trial.run(number(2, 0), number(0, 0));
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 2;
}
