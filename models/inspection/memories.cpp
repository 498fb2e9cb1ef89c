// Feed-forward units and persistent slots (memory_units.h): top activations and promoted logits.
//
//   activations positions with the largest |value| of the unit, over the example and the corpus, in their context
//   promotes    tokens or classes whose logits rise most, and fall most, by z(r + a v) - z(r). r is the last
//               residual state at the unit's top activation, a its value there, v the unit's contribution to the
//               residual stream per 1 of value: the state after its sublayer with this unit at a and all others
//               at 0, minus the state with all at 0, over a. So v includes gains, gates and output weights. If
//               only a linear head follows r, the rise is a W_head v (Geva et al. 2022, arXiv:2203.14680;
//               TransformerLens reads W_out W_U); otherwise it also includes the final normalization
//   carriers    number of units, largest first, with 85 % of the sum of |value| at a position, mean over positions
//               (A Study on ReLU and Softmax in Transformer, arXiv:2302.06461, finds 0.2 % of slots under softmax)
//   never       fraction of dead units, which are exactly 0 at every position
#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "engine/types/wording.h"
#include "models/inspection/base/answers.h"
#include "models/inspection/base/memory_units.h"
#include "models/inspection/base/residual_stream.h"

namespace orrery::models {
namespace {

constexpr double most_of_mass = 0.85;
constexpr size_t votes_of_line = 5, places_of_line = 3;

struct Peak {
  double value;
  const Subject* subject;
  size_t place;
};

// Statistics of the units of one module over the positions of all examples.
class Record {
 public:
  Record(const Memory& memory, size_t most)
      : memory_(memory),
        most_(most),
        peaks_(static_cast<size_t>(memory.units())),
        opened_(peaks_.size()),
        sorted_mass_(peaks_.size()) {}

  void add(const Subject& subject, const Tensor& values) {  // (positions, units)
    for (int64_t place = 0; place < values.size(0); ++place) {
      std::vector<double> sizes = values[place].to_vector();
      double total = 0;
      for (size_t unit = 0; unit < sizes.size(); ++unit) {
        const double value = sizes[unit];
        if (value != 0) opened_[unit] = true, offer(peaks_[unit], {value, &subject, static_cast<size_t>(place)});
        total += sizes[unit] = std::abs(value);
      }
      if (total > 0) add_mass(std::move(sizes), total);
    }
  }
  const Memory& memory() const { return memory_; }  // with the values of the first example
  const std::vector<Peak>& peaks(int64_t unit) const { return peaks_[static_cast<size_t>(unit)]; }
  double carriers() const { return places_ > 0 ? carriers_ / places_ : NAN; }
  double never() const {
    return static_cast<double>(std::count(opened_.begin(), opened_.end(), false)) / static_cast<double>(opened_.size());
  }
  // Returns the cumulative fraction of the largest units over their number, in growing steps.
  LineView::Line curve() const {
    LineView::Line line{memory_.path, {}, {}};
    double sum = 0, next = 1;
    for (size_t i = 0; i < sorted_mass_.size(); ++i) {
      sum += sorted_mass_[i];
      const auto count = static_cast<double>(i + 1);
      if (count < next && i + 1 < sorted_mass_.size()) continue;
      line.x.push_back(count), line.y.push_back(sum / places_), next = std::max(count + 1, count * 1.1);
    }
    return line;
  }
  // Returns the units with the largest |values|, largest first.
  std::vector<int64_t> outstanding(int64_t count) const {
    std::vector<double> sizes;
    for (const std::vector<Peak>& each : peaks_) sizes.push_back(each.empty() ? 0 : std::abs(each[0].value));
    const std::vector<int32_t> units = largest(sizes, count);
    return {units.begin(), units.end()};
  }

 private:
  void offer(std::vector<Peak>& peaks, const Peak& peak) const {
    if (peaks.size() == most_ && std::abs(peak.value) <= std::abs(peaks.back().value)) return;
    const auto larger = [](const Peak& a, const Peak& b) { return std::abs(a.value) > std::abs(b.value); };
    peaks.insert(std::upper_bound(peaks.begin(), peaks.end(), peak, larger), peak);
    if (peaks.size() > most_) peaks.pop_back();
  }
  void add_mass(std::vector<double> sizes, double total) {
    std::sort(sizes.begin(), sizes.end(), std::greater<>());
    double sum = 0;
    bool carried = false;
    for (size_t i = 0; i < sizes.size(); ++i) {
      sorted_mass_[i] += sizes[i] / total, sum += sizes[i];
      if (!carried && sum >= most_of_mass * total) carriers_ += static_cast<double>(i + 1), carried = true;
    }
    ++places_;
  }

  Memory memory_;
  size_t most_;
  std::vector<std::vector<Peak>> peaks_;  // per unit
  std::vector<bool> opened_;
  std::vector<double> sorted_mass_;
  double carriers_ = 0, places_ = 0;
};

std::vector<Record> records_of(const Subject& subject, const LookSettings& s) {
  std::vector<Record> records;
  const size_t most = std::max(places_of_line, static_cast<size_t>(std::max<int64_t>(s.top, 1)));
  for (const Memory& memory : see_memories(subject)) {
    records.emplace_back(memory, most);
    records.back().add(subject, memory.values);
  }
  size_t read = 0;
  for (const Subject* more : s.corpus) {
    s.tell("read the corpus", ++read, s.corpus.size());
    if (more == &subject) continue;
    const std::vector<Memory> seen = see_memories(*more);
    check(seen.size() == records.size(), "inspect: the corpus must consist of examples of one model");
    for (size_t i = 0; i < seen.size(); ++i) records[i].add(*more, seen[i].values);
  }
  return records;
}

// Returns a position's label in its context: "…the␣qu[i]ck␣fox…". Adds spaces between labels if no
// label contains one.
std::string in_context(const Subject::Words& words, size_t place) {
  constexpr size_t enough = 14;  // bytes on each side
  const bool spaced = std::any_of(words.begin(), words.end(),
                                  [](const std::string& word) { return word.find("␣") != std::string::npos; });
  const std::string between = spaced ? "" : " ";
  if (place >= words.size()) return "whole example";
  std::string before, after;
  size_t first = place, end = place + 1;
  while (first > 0 && before.size() < enough) before = words[--first] + between + before;
  while (end < words.size() && after.size() < enough) after += between + words[end++];
  return (first > 0 ? "…" : "") + before + "[" + words[place] + "]" + after + (end < words.size() ? "…" : "");
}

// ---- promoted logits

struct Votes {
  double value;               // a
  std::vector<double> rises;  // per token or class
};

// Returns the residual state after the unit's sublayer at one position, with all other units at 0.
std::vector<double> state_with_unit(const Subject& subject, const Memory& memory, size_t place,
                                    std::optional<int64_t> unit, double value) {
  const Hooks opened({memory.name}, Hooks::Replace{[&](const std::string&, const Tensor& shown) {
                       std::vector<double> numbers = shown.to_vector();
                       memory.set_all(shown.shape(), numbers, 0);
                       if (unit) memory.set(shown.shape(), numbers, *unit, value);
                       return in_place_of(shown, Tensor::from(shown.shape(), numbers, Dtype::f64));
                     }});
  std::vector<double> state;
  see_values(subject, {memory.path + ".residual"}, [&](const std::string&, const std::string&, const Tensor& residual) {
    const Tensor rows = as_seen(residual).reshape(Shape{residual.shape().rows(), residual.shape().last()});
    state = rows[static_cast<int64_t>(place)].to_vector();
  });
  return state;
}

class Voting {
 public:
  // Returns none if the module is not on the stream that gives the logits.
  std::optional<Votes> of(const Subject& subject, const Memory& memory, int64_t unit, const Peak& peak) {
    const auto& [stream, before] = end_of(subject);
    if (stream.states.empty() || std::none_of(stream.states.begin(), stream.states.end(),
                                              [&](const ResidualState& state) { return state.path == memory.path; }))
      return {};
    const double a = peak.value != 0 ? peak.value : 1;
    const std::vector<double> with = state_with_unit(subject, memory, peak.place, unit, a),
                              without = state_with_unit(subject, memory, peak.place, {}, 0);
    // Adds a v at every position, because the head may read another position or the mean of all.
    std::vector<double> states = stream.last().value.to_vector();
    for (size_t i = 0; i < states.size(); ++i) states[i] += with[i % with.size()] - without[i % with.size()];
    const Shape shape = stream.last().value.shape();
    const Tensor after = logits_of(subject, stream, Tensor::from(shape, states, Dtype::f64));
    const auto row = std::min(static_cast<int64_t>(peak.place), after.size(0) - 1);
    Votes votes{a, after[row].to_vector()};
    const std::vector<double> former = before[row].to_vector();
    for (size_t i = 0; i < former.size(); ++i) votes.rises[i] -= former[i];
    return votes;
  }

 private:
  struct End {
    ResidualStream stream;  // the stream that gives the logits
    Tensor logits;
  };
  const End& end_of(const Subject& subject) {
    const auto [found, is_new] = ends_.try_emplace(&subject);
    if (!is_new) return found->second;
    if (std::vector<ResidualStream> all = observe_streams(subject).streams; !all.empty()) {
      found->second.stream = std::move(all.back());
      found->second.logits = logits_of(subject, found->second.stream, found->second.stream.last().value);
    }
    return found->second;
  }
  std::map<const Subject*, End> ends_;
};

std::string in_line(const Subject& subject, const Votes& votes) {
  std::string line;
  for (const int32_t answer : largest(votes.rises, votes_of_line))
    line += (line.empty() ? "" : "  ") + subject.answer(answer) + " " +
            signed_fixed(votes.rises[static_cast<size_t>(answer)], 2);
  return line;
}

// ---- views

void add_unit(std::vector<View>& views, const Subject& subject, const Record& record, int64_t unit, Voting& voting,
              const LookSettings& s) {
  const Memory& memory = record.memory();
  const std::string name = memory.path + " " + memory.unit(unit);
  const std::vector<Peak>& peaks = record.peaks(unit);
  TableView table{{"value", "position", "top activations"}, "rrl", {}};
  for (const Peak& peak : peaks)
    if (static_cast<int64_t>(table.rows.size()) < s.top)
      table.rows.push_back({significant(peak.value, 4), std::to_string(peak.place),
                            in_context(peak.subject->places(memory.path), peak.place)});
  views.push_back({"Neurons", "", name,
                   peaks.empty() ? "The unit is 0 at every position." : "Positions with the unit's largest |value|.",
                   std::move(table)});
  const Peak at = peaks.empty() ? Peak{0, &subject, 0} : peaks[0];
  const auto votes = voting.of(*at.subject, memory, unit, at);
  if (!votes) return;
  BarView bars{"increase of the logit", {}};
  std::vector<double> falls = votes->rises;
  for (double& fall : falls) fall = -fall;
  std::vector<int32_t> answers = largest(votes->rises, s.top), lowest = largest(falls, s.top);
  for (auto answer = lowest.rbegin(); answer != lowest.rend(); ++answer)
    if (std::find(answers.begin(), answers.end(), *answer) == answers.end()) answers.push_back(*answer);
  for (const int32_t answer : answers)
    bars.bars.push_back({.name = subject.answer(answer), .value = votes->rises[static_cast<size_t>(answer)]});
  views.push_back({"Neurons", "", name + ": promoted logits",
                   text("Change of the logits if the unit's contribution at value ", significant(votes->value, 4),
                        " is added to the last residual state."),
                   std::move(bars)});
}

void add_outstanding(std::vector<View>& views, const Subject& subject, const Record& record, Voting& voting,
                     const LookSettings& s) {
  const Memory& memory = record.memory();
  TableView table{{"unit", "value", "promotes", "top activations"}, "lrll", {}};
  MapView map{.figure = "value", .rows = {}, .columns = subject.places(memory.path), .values = {}, .has_sign = false};
  std::vector<double> values;
  const std::vector<double> all = memory.values.to_vector();
  for (const int64_t unit : record.outstanding(s.top)) {
    const std::vector<Peak>& peaks = record.peaks(unit);
    if (peaks.empty()) continue;
    const auto votes = voting.of(*peaks[0].subject, memory, unit, peaks[0]);
    std::string opened;
    for (size_t i = 0; i < std::min(peaks.size(), places_of_line); ++i)
      opened += (i > 0 ? "  " : "") + in_context(peaks[i].subject->places(memory.path), peaks[i].place);
    table.rows.push_back(
        {memory.unit(unit), significant(peaks[0].value, 4), votes ? in_line(subject, *votes) : "-", opened});
    map.rows.push_back(memory.unit(unit));
    for (int64_t place = 0; place < memory.values.size(0); ++place)
      values.push_back(all[static_cast<size_t>(place * memory.units() + unit)]);
  }
  if (table.rows.empty()) return;
  views.push_back({"Neurons", "", memory.path,
                   "The units with the largest |values|, the logits that each increases most at its top activation, "
                   "and the contexts of its top activations.",
                   std::move(table)});
  const Shape shape{1, static_cast<int64_t>(map.rows.size()), memory.values.size(0)};
  if (static_cast<int64_t>(map.columns.size()) != shape[2])
    map.columns.assign(static_cast<size_t>(shape[2]), "whole example");
  map.has_sign = std::any_of(values.begin(), values.end(), [](double value) { return value < 0; });
  map.values = Tensor::from(shape, values, Dtype::f64);
  views.push_back(
      {"Neurons", "neurons/" + memory.path, memory.path + ": values of these units", "", std::move(map), true});
}

void add_shares(std::vector<View>& views, const std::vector<Record>& records, const std::vector<size_t>& layers) {
  TableView table{{"module", "units", "for 85 %", "of all", "dead"}, "lrrrr", {}};
  LineView lines{"number of largest units", "fraction of the sum of |value|", {}};
  std::vector<std::pair<std::string, double>> told;
  for (const size_t layer : layers) {
    const Record& record = records[layer];
    const auto units = static_cast<double>(record.memory().units());
    table.rows.push_back({record.memory().path, std::to_string(record.memory().units()), fixed(record.carriers(), 1),
                          fixed(100 * record.carriers() / units, 2) + " %", fixed(100 * record.never(), 1) + " %"});
    lines.lines.push_back(record.curve());
    for (const auto& [name, value] :
         {std::pair("carriers", record.carriers()), std::pair("never_open", record.never())})
      told.emplace_back(text("neurons/", name, "/", record.memory().path), value);
  }
  views.push_back({"Neurons", "", "Concentration of the activations",
                   "Number of largest units that have 85 % of the sum of |value| at a position, as a mean over the "
                   "positions, and the fraction of dead units, which are 0 at every position.",
                   std::move(table), false, std::move(told)});
  views.push_back({"Neurons", "neurons/mass", "Cumulative fraction of the largest units", "", std::move(lines), true});
}

void look(std::vector<View>& views, const Subject& subject, const LookSettings& s) {
  const std::vector<Record> records = records_of(subject, s);
  if (records.empty()) return;
  const std::vector<size_t> layers = chosen_layers(records.size(), s.layer, "feed-forward and slot modules");
  add_shares(views, records, layers);
  Voting voting;
  for (const size_t layer : layers) {
    records[layer].memory().check_unit(s.slot);
    if (s.slot >= 0)
      add_unit(views, subject, records[layer], s.slot, voting, s);
    else
      add_outstanding(views, subject, records[layer], voting, s);
  }
}

REGISTER_LOOK(neurons, {.name = "neurons",
                        .description = "feed-forward units and persistent slots: top activations, promoted logits, "
                                       "concentration, dead units",
                        .look = look});

}  // namespace
}  // namespace orrery::models
