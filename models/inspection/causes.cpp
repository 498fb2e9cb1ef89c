// What the loss of an example hangs on.
//
// Ablation: the loss, mean -ln p of the right answers, without one part minus the loss with all of it.
//   a head       its `read` is zero at every place (TransformerLens: hook_z), which is its columns of W_o being zero
//   a sublayer   its `output` is zero, biases too: the residual stream passes by it
//   a unit       the feed-forward's hidden value, or the weight of a persistent slot, is zero at every place; what the
//                others have of softmax stays as it is.  Those with the largest mean |value| are tried
//
// Patching (causal tracing, Meng et al. 2022, arXiv:2202.05262; Zhang and Nanda 2023, arXiv:2309.16042): this example
// runs with the other's residual state in the place of its own, in one layer and place.  Told is the share of the
// difference of the two examples that this restores,
//   share = (m(patched) - m(this)) / (m(other) - m(this))      1: the other's behaviour is back; below 0: farther away
//   m = z[the other's answer] - z[this one's], of logits z at the place that is asked for, or the last that has an
//       answer in both; where the answers are the same, m = z[the answer]
// Nothing runs for states that are the same in both: the share is 0.
#include <algorithm>

#include "engine/base/wording.h"
#include "models/inspection/base/answers.h"
#include "models/inspection/base/memory_units.h"
#include "models/inspection/base/residual_stream.h"

namespace orrery::models {
namespace {

// ---- ablation

struct Harm {
  std::string what;
  double difference;
};

class Ablation {
 public:
  explicit Ablation(const Subject& subject) : subject_(subject) {
    const Tensor logits = subject.run();
    answers_ = answers_to(subject, logits);
    loss_ = loss_of(logits, answers_.of_rows);
  }
  double loss() const { return loss_; }
  const Answers& answers() const { return answers_; }
  const std::vector<Harm>& all() const { return all_; }
  double without(const std::string& what, const std::string& name, const Change& change) {
    const double harm = loss_of(run_changed(subject_, name, change), answers_.of_rows) - loss_;
    all_.push_back({what, harm});
    return harm;
  }

 private:
  const Subject& subject_;
  Answers answers_;
  double loss_ = 0;
  std::vector<Harm> all_;
};

void nothing(const Shape&, std::vector<double>& numbers) { std::fill(numbers.begin(), numbers.end(), 0.0); }

// read (1, T, H, D): those of one head.
Change without_head(int64_t head) {
  return [=](const Shape& shape, std::vector<double>& read) {
    const int64_t heads = shape[-2], size = shape[-1];
    for (int64_t at = 0; at < shape.numel(); ++at)
      if (at / size % heads == head) read[static_cast<size_t>(at)] = 0;
  };
}

void without_heads(std::vector<View>& views, Ablation& ablation, const Subject& subject, const LookSettings& s) {
  const std::vector<Seen> reads = see(subject, "read");
  if (reads.empty()) return;
  MapView map{.figure = "loss without - with", .rows = {}, .columns = {}, .values = {}, .has_sign = true};
  map.axes = {"", "head"}, map.none = "not left out";
  std::vector<std::vector<double>> harms;
  size_t most = 0;
  for (const size_t layer : chosen_layers(reads.size(), s.layer, "attention")) {
    const std::string& path = reads[layer].path;
    const int64_t heads = reads[layer].value.size(-2);
    check_head(s.head, heads, path);
    map.rows.push_back(path), harms.emplace_back();
    for (int64_t head = 0; head < heads; ++head)
      harms.back().push_back(s.head >= 0 && s.head != head
                                 ? NAN
                                 : ablation.without(text(path, " head ", head), path + ".read", without_head(head)));
    most = std::max(most, harms.back().size());
  }
  std::vector<double> values;
  for (std::vector<double>& each : harms) {
    each.resize(most, NAN);
    values.insert(values.end(), each.begin(), each.end());
  }
  for (size_t head = 0; head < most; ++head) map.columns.push_back(std::to_string(head));
  map.values =
      Tensor::from(Shape{1, static_cast<int64_t>(harms.size()), static_cast<int64_t>(most)}, values, Dtype::f64);
  views.push_back({"Causes", "causes/heads", "Loss without each head",
                   "By how much the loss of the example rises without a head; what falls is better without it.",
                   std::move(map)});
}

void without_sublayers(std::vector<View>& views, Ablation& ablation, const std::vector<ResidualStream>& streams) {
  BarView bars{"loss without - with", {}};
  for (const ResidualStream& stream : streams)
    for (const ResidualState& state : stream.states)
      if (!state.is_embedding())
        bars.bars.push_back(
            {.name = state.path, .value = ablation.without(state.path, state.path + ".output", nothing)});
  if (!bars.bars.empty())
    views.push_back({"Causes", "", "Loss without each sublayer",
                     "By how much the loss of the example rises without an attention or feed-forward as a whole.",
                     std::move(bars)});
}

// The units of a memory with the largest mean |value|, at most `count`, or the one that is asked for.
std::vector<int64_t> strongest(const Memory& memory, const LookSettings& s) {
  if (s.slot >= 0) return {s.slot};
  const std::vector<double> values = memory.values.to_vector();
  std::vector<double> sums(static_cast<size_t>(memory.units()));
  for (size_t i = 0; i < values.size(); ++i) sums[i % sums.size()] += std::abs(values[i]);
  const std::vector<int32_t> first = largest(sums, s.top);
  return {first.begin(), first.end()};
}

void without_units(Ablation& ablation, const Subject& subject, const LookSettings& s) {
  const std::vector<Memory> memories = see_memories(subject);
  if (s.layer >= static_cast<int64_t>(memories.size())) return;  // one of an attention without slots
  for (const size_t layer : chosen_layers(memories.size(), s.layer, "memory")) {
    const Memory& memory = memories[layer];
    memory.check_unit(s.slot);
    for (const int64_t unit : strongest(memory, s))
      ablation.without(memory.path + " " + memory.unit(unit), memory.name,
                       [&](const Shape& shape, std::vector<double>& numbers) { memory.set(shape, numbers, unit, 0); });
  }
}

void look_at_ablations(std::vector<View>& views, const Subject& subject, const LookSettings& s,
                       const std::vector<ResidualStream>& streams) {
  Ablation ablation(subject);
  std::vector<View> drawn;
  without_heads(drawn, ablation, subject, s);
  without_sublayers(drawn, ablation, streams);
  without_units(ablation, subject, s);
  std::vector<Harm> all = ablation.all();
  if (all.empty()) return;
  std::stable_sort(all.begin(), all.end(), [](const Harm& a, const Harm& b) { return a.difference > b.difference; });
  TableView table{{"without", "loss", "difference"}, "lrr", {}};
  std::vector<std::pair<std::string, double>> told = {{"causes/loss", ablation.loss()}};
  for (const Harm& harm : all) {
    std::string name = harm.what;
    std::replace(name.begin(), name.end(), ' ', '.');
    told.emplace_back("causes/without/" + name, harm.difference);
    if (static_cast<int64_t>(table.rows.size()) < s.top)
      table.rows.push_back({harm.what, fixed(ablation.loss() + harm.difference, 4), signed_fixed(harm.difference, 4)});
  }
  views.push_back({"Causes", "", "What the example needs most",
                   text("The loss of the example, mean -ln p of ", ablation.answers().described(), ", is ",
                        fixed(ablation.loss(), 4), ".  ", all.size(),
                        " parts were left out one at a time: heads, sublayers, and the strongest units of memories.  ",
                        "The least needed is ", all.back().what, ", ", signed_fixed(all.back().difference, 4), "."),
                   std::move(table), false, std::move(told)});
  std::move(drawn.begin(), drawn.end(), std::back_inserter(views));
}

// ---- patching

// How far a run is from one example's behaviour to the other's.
class Distance {
 public:
  Distance(const Subject& subject, const Subject& other, int64_t place) {
    const Tensor here = subject.run(), there = other.run();
    check(here.shape() == there.shape(), "inspect: the two examples have ", here.size(0), " and ", there.size(0),
          " places to answer, and patching puts place for place; give another example with as many tokens");
    check(place < here.size(0), "inspect: there is no place ", place, "; there are ", here.size(0), ", from 0");
    const std::vector<int32_t> own = answers_to(subject, here).of_rows, others = answers_to(other, there).of_rows;
    const auto both = [&](int64_t row) {
      return own[static_cast<size_t>(row)] >= 0 && others[static_cast<size_t>(row)] >= 0;
    };
    row_ = place >= 0 ? place : here.size(0) - 1;
    while (place < 0 && row_ > 0 && !both(row_)) --row_;
    check(both(row_), "inspect: place ", row_,
          " has no answer in both examples; choose an earlier one, or give longer ", "examples");
    own_ = own[static_cast<size_t>(row_)], others_ = others[static_cast<size_t>(row_)];
    here_ = measure(here), there_ = measure(there);
    check(here_ != there_, "inspect: the model answers both examples in the same way at place ", row_,
          ", so patching has nothing to restore; choose another place or another example");
  }
  double share(const Tensor& logits) const { return (measure(logits) - here_) / (there_ - here_); }
  std::string said(const Subject& subject) const {
    const std::string what =
        own_ == others_ ? text("the logit of ", subject.answer(own_))
                        : text("the logit of ", subject.answer(others_), " over that of ", subject.answer(own_));
    return text(what, " at place ", row_, " (", significant(here_, 4), " here, ", significant(there_, 4), " there)");
  }

 private:
  double measure(const Tensor& logits) const {
    const std::vector<double> z = logits[row_].to_vector();
    const double others = z[static_cast<size_t>(others_)];
    return own_ == others_ ? others : others - z[static_cast<size_t>(own_)];
  }
  int64_t row_ = 0;
  int32_t own_ = 0, others_ = 0;
  double here_ = 0, there_ = 0;
};

// Both words where they differ: "Rome|Paris".
Subject::Words words_of_both(const Subject::Words& own, const Subject::Words& others) {
  Subject::Words both = own;
  for (size_t i = 0; i < both.size(); ++i)
    if (i < others.size() && others[i] != own[i]) both[i] += "|" + others[i];
  return both;
}

// Shares of the states of one stream: of each place, then of all places at once.
std::vector<double> patched(const Subject& subject, const Distance& distance, const ResidualState& own,
                            const ResidualState& others) {
  const std::vector<double> ours = own.value.to_vector(), theirs = others.value.to_vector();
  const auto width = static_cast<size_t>(own.value.size(1)), places = static_cast<size_t>(own.value.size(0));
  const auto put = [&](size_t begin, size_t end) {  // numbers of the places from begin on
    if (std::equal(ours.begin() + static_cast<std::ptrdiff_t>(begin), ours.begin() + static_cast<std::ptrdiff_t>(end),
                   theirs.begin() + static_cast<std::ptrdiff_t>(begin)))
      return 0.0;
    return distance.share(run_changed(subject, own.name, [&](const Shape&, std::vector<double>& numbers) {
      std::copy(theirs.begin() + static_cast<std::ptrdiff_t>(begin), theirs.begin() + static_cast<std::ptrdiff_t>(end),
                numbers.begin() + static_cast<std::ptrdiff_t>(begin));
    }));
  };
  std::vector<double> shares;
  for (size_t place = 0; place < places; ++place) shares.push_back(put(place * width, (place + 1) * width));
  shares.push_back(put(0, places * width));
  return shares;
}

void look_at_patches(std::vector<View>& views, const Subject& subject, const Subject& other, int64_t place,
                     const std::vector<ResidualStream>& streams) {
  check(&subject.model() == &other.model(), "inspect: patching needs two examples of one model");
  const std::vector<ResidualStream> of_other = residual_streams(other);
  for (size_t i = 0; i < streams.size(); ++i) {
    const ResidualState &own = streams[i].states[0], &others = of_other.at(i).states[0];
    check(own.value.shape() == others.value.shape(), "inspect: the two examples have ", own.value.size(0), " and ",
          others.value.size(0), " places in ", own.path,
          ", and patching puts place for place; give another example with as many tokens");
  }
  if (streams.empty()) return;
  const Distance distance(subject, other, place);
  for (size_t i = 0; i < streams.size(); ++i) {
    const std::string& begin = streams[i].states[0].path;
    MapView map{.figure = "share restored", .rows = {}, .columns = {}, .values = {}, .has_sign = true};
    map.axes = {"state after", "at the place of"};
    std::vector<double> values;
    for (size_t k = 0; k < streams[i].states.size(); ++k) {
      const std::vector<double> shares = patched(subject, distance, streams[i].states[k], of_other[i].states[k]);
      map.rows.push_back(streams[i].states[k].path);
      values.insert(values.end(), shares.begin(), shares.end());
    }
    map.columns = words_of_both(subject.places(begin), other.places(begin));
    map.columns.push_back("all");
    const auto rows = static_cast<int64_t>(map.rows.size()), columns = static_cast<int64_t>(map.columns.size());
    map.values = Tensor::from(Shape{1, rows, columns}, values, Dtype::f64);
    std::string file = begin;
    std::replace(file.begin(), file.end(), '.', '_');
    views.push_back({"Causes", "causes/patched_" + file, "Patching from the other example",
                     "Which share of the difference between the examples comes back if one state of the residual "
                     "stream is the other's.  The difference is in " +
                         distance.said(subject) + ".",
                     std::move(map)});
  }
}

void look(std::vector<View>& views, const Subject& subject, const LookSettings& s) {
  const std::vector<ResidualStream> streams = residual_streams(subject);
  look_at_ablations(views, subject, s, streams);
  if (s.other) look_at_patches(views, subject, *s.other, s.place, streams);
}

REGISTER_LOOK(causes, {.name = "causes",
                       .description = "loss without each head, sublayer and the strongest units; patching from another "
                                      "example, layer by place",
                       .look = look});

}  // namespace
}  // namespace orrery::models
