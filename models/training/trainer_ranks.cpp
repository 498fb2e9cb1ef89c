// Exchanges between the ranks of a run, which give it the same bits for any number of them. Each
// rank has a share of a step's parts, and updates the elements that it owns. All else that a step
// changes is equal on all ranks; rank 0 alone has what only checkpoints and metrics need.
#include <gnu/libc-version.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/matmul/matmul.h"
#include "engine/system/hash.h"
#include "engine/system/version.h"
#include "engine/types/usage_error.h"
#include "models/formats/json.h"
#include "models/source_hash.h"
#include "models/training/resume.h"
#include "models/training/trainer.h"
#include "nn/base/step_records.h"

namespace orrery::models {
namespace {

std::string text_of(const Fingerprint& data) { return orrery::text(data.sha256, ", ", data.bytes, " bytes"); }

// Calls differs(rank, name, theirs, of rank 0) for each fact, a text by its name, that is another on another rank.
template <class Differs>
void compare(Ranks& ranks, const Json& facts, const Differs& differs) {
  const std::vector<std::string> records = ranks.meet(json_text(facts));
  const Json first = parse_own_json(records[0]);
  const auto value = [](const Json& all, const std::string& name) {
    return all.contains(name) ? all[name].get<std::string>() : "none";
  };
  for (int64_t r = 1; r < ranks.count(); ++r) {
    const Json its = parse_own_json(records[static_cast<size_t>(r)]);
    for (const Json* const all : {&first, &its})
      for (const auto& [name, unused] : all->items())
        if (value(its, name) != value(first, name) && (all == &first || !first.contains(name)))
          differs(r, name, value(its, name), value(first, name));
  }
}

void send_text(Ranks& ranks, int64_t to, const std::string& text) {
  const auto size = static_cast<int64_t>(text.size());
  ranks.send(to, &size, sizeof size), ranks.send(to, text.data(), size);
  ranks.wait_for_sends();
}
std::string receive_text(Ranks& ranks, int64_t from) {
  int64_t size = 0;
  ranks.wait(ranks.receive(from, &size, sizeof size));
  std::string text(static_cast<size_t>(size), '\0');
  ranks.wait(ranks.receive(from, text.data(), size));
  return text;
}

// Tensors travel as their sizes, then their elements.
void send_tensors(Ranks& ranks, int64_t to, const std::vector<std::pair<std::string, Tensor>>& tensors) {
  Json sizes = Json::array();
  for (const auto& [name, x] : tensors) {
    sizes.push_back({name, orrery::name(x.dtype())});
    for (int axis = 0; axis < x.shape().rank(); ++axis) sizes.back().push_back(x.size(axis));
  }
  send_text(ranks, to, json_text(sizes));
  std::vector<Tensor> sent;
  for (const auto& [name, x] : tensors) {
    sent.push_back(x.to(Device::cpu));
    ranks.send(to, sent.back().raw(), x.bytes());
  }
  ranks.wait_for_sends();
}
std::vector<std::pair<std::string, Tensor>> receive_tensors(Ranks& ranks, int64_t from) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const Json& each : parse_own_json(receive_text(ranks, from))) {
    Shape shape;
    for (size_t i = 2; i < each.size(); ++i) shape.append(each[i].get<int64_t>());
    tensors.emplace_back(each[0], Tensor::empty(shape, parse_dtype(each[1]), Device::cpu));
    ranks.wait(ranks.receive(from, tensors.back().second.mutable_raw(), tensors.back().second.bytes()));
  }
  return tensors;
}

}  // namespace

IndexRange Trainer::micro_batches_of(int64_t rank) const {
  return orrery::micro_batches_of(rank, ranks_->count(), settings_.gradient_parts,
                                  settings_.gradient_accumulation_steps);
}

void Trainer::check_ranks() const {
  if (!has_others()) return;
  const TrainSettings& s = settings_;
  const int64_t n = ranks_->count();
  check_usage(!s.cuda_graph, "train: --cuda_graph=yes replays the steps of one process, not of ", n,
              " ranks; leave one of them out");
  check_usage(s.gradient_accumulation_steps >= n, "train: ", n,
              " ranks share the micro-batches of a step, but gradient_accumulation_steps is ",
              s.gradient_accumulation_steps, "; use --gradient_accumulation_steps=", n, " or more, or fewer ranks");
  check_usage(s.gradient_parts >= n, "train: ", n, " ranks share the parts of a step, but gradient_parts is ",
              s.gradient_parts, "; use --gradient_parts=", n, " or more, or fewer ranks");
}

void Trainer::compare_ranks() {
  if (!has_others()) return;
  const Build built = build();
  Json facts = {{"version of orrery", orrery::text(built.version, " (sources ", source_hash, ")")},
                {"training data", text_of(task_->fingerprint())}};
  for (const auto& [key, value] : list_settings(settings_)) facts[key] = value;
  for (const auto& [name, data] : with_loaded_plugins(task_->extra_inputs())) facts[name] = text_of(data);
  compare(*ranks_, facts, [&](int64_t r, const std::string& name, const std::string& its, const std::string& first) {
    fail("train: ", ranks_->name_of(r), " differs from ", ranks_->name_of(0), " in ", name, ": ", its, ", not ", first,
         "; all hosts need the same build, and the same files under the same paths");
  });
  if (device_ == Device::cuda && ranks_->count_on_host() > 1)
    rank_notes_.push_back(orrery::text(ranks_->count_on_host(), " ranks of host ", ranks_->hosts()[0],
                                       " share a GPU, unless CUDA_VISIBLE_DEVICES gives each of them its own"));
  const Json machine = {{"instruction sets", processor_instruction_sets()},
                        {"the compiler", built.compiler + " " + built.flags},
                        {"matrix products", blas_description()},
                        {"the C library", gnu_get_libc_version()}};
  compare(*ranks_, machine, [&](int64_t r, const std::string& name, const std::string& its, const std::string& first) {
    rank_notes_.push_back(orrery::text(ranks_->name_of(0), " and ", ranks_->name_of(r), " differ in ", name, ": ",
                                       first, "; ", its, ". Training is right, but its bits are those of these hosts"));
  });
}

// A new run gets rank 0's weights, a resumed one its optimizer state and stream states, too.
void Trainer::share_initial_state(bool resumed) {
  broadcast(*ranks_, parameters_->values());
  if (parameters_->bf16_copy()) broadcast(*ranks_, parameters_->bf16_copy());
  for (const auto& [path, buffer] : nn::buffers_of(*model_)) broadcast(*ranks_, *buffer);
  if (!resumed) return;
  optimizer_->move_state(false);
  if (step_ > 0) move_stream_states(false);
}

void Trainer::share_counts(std::vector<BatchCounts>& counts) const {
  std::vector<IndexRange> bytes;
  for (int64_t r = 0; r < ranks_->count(); ++r) {
    const IndexRange its = micro_batches_of(r);
    constexpr auto size = static_cast<int64_t>(sizeof(BatchCounts));
    bytes.push_back({its.begin * size, its.end * size});
  }
  ranks_->share(counts.data(), bytes);
}

void Trainer::take_losses(int64_t micro) {
  const std::vector<double> losses = losses_.to_vector();
  micro_losses_.resize(static_cast<size_t>(settings_.gradient_accumulation_steps) * losses.size());
  std::copy(losses.begin(), losses.end(), micro_losses_.begin() + micro * losses_.numel());
  zero_bytes(device_, losses_.mutable_raw(), losses_.bytes());
}

void Trainer::exchange_step() {
  gradient_sum_->add_up(*ranks_, owners_->owned());
  std::vector<IndexRange> bytes;
  const int64_t row = losses_.bytes();
  for (int64_t r = 0; r < ranks_->count(); ++r)
    bytes.push_back({micro_batches_of(r).begin * row, micro_batches_of(r).end * row});
  ranks_->share(micro_losses_.data(), bytes);
  std::vector<double> losses(static_cast<size_t>(losses_.numel()));
  for (size_t i = 0; i < micro_losses_.size(); ++i)  // in the order of one process
    losses[i % losses.size()] += micro_losses_[i];
  losses_.copy_from(Tensor::from(losses_.shape(), losses, Dtype::f64));
  share_step_records();
}

void Trainer::share_step_records() {
  std::vector<std::pair<std::string, Tensor>> mine;
  for (const auto* const records : nn::step_records_of(*model_))
    for (const nn::StepRecord& record : *records)
      for (const Tensor& x : record.tensors) mine.emplace_back("", x);
  if (mine.empty()) return;  // on all ranks
  std::vector<std::vector<nn::StepRecord>> all(nn::step_records_of(*model_).size());
  for (int64_t from = 0; from < ranks_->count(); ++from) {
    if (ranks_->rank() == from)
      for (int64_t i = 1; i < ranks_->count(); ++i) send_tensors(*ranks_, (from + i) % ranks_->count(), mine);
    const auto tensors = ranks_->rank() == from ? mine : receive_tensors(*ranks_, from);
    // Modules have equally many records of a micro-batch on all ranks.
    const int64_t micro_batches = micro_batches_of(from).size();
    size_t next = 0;
    for (size_t m = 0; m < all.size(); ++m) {
      const auto& own = *nn::step_records_of(*model_)[m];
      const int64_t of_one = static_cast<int64_t>(own.size()) / micro_batches_of(ranks_->rank()).size();
      for (int64_t i = 0; i < of_one * micro_batches; ++i) {
        nn::StepRecord record;
        for (size_t t = 0; t < own[0].tensors.size(); ++t) record.tensors.push_back(tensors[next++].second.to(device_));
        all[m].push_back(std::move(record));
      }
    }
  }
  for (size_t m = 0; m < all.size(); ++m) *nn::step_records_of(*model_)[m] = std::move(all[m]);
}

bool Trainer::agree_to_stop(bool stops) const { return ranks_->sum(stops ? 1 : 0) > 0; }
bool Trainer::decided_by_first(bool decision) const { return ranks_->sum(ranks_->is_first() && decision ? 1 : 0) > 0; }

void Trainer::gather_for_metrics() {
  owners_->gather(parameters_->gradients());
  if (parameters_->bf16_copy()) owners_->gather(parameters_->values());
}

void Trainer::throw_first(const std::function<void()>& work) const {
  if (!has_others()) return work();
  std::string found;
  try {
    work();
  } catch (const NonFiniteError& error) {
    found = text_of(NonFiniteReport{.call = error.record()});
  }
  for (const std::string& each : ranks_->meet(found))
    if (!each.empty()) throw NonFiniteError(report_in(each, "--nan_guard").call);
}

void Trainer::gather_run_state() {
  const Tensor& all = parameters_->bf16_copy() ? parameters_->bf16_copy() : parameters_->values();
  const Tensor host = all.to(Device::cpu);
  const std::span<const std::byte> bytes{static_cast<const std::byte*>(host.raw()), static_cast<size_t>(host.bytes())};
  const Json weights = {{"weights", sha256(bytes)}};
  compare(*ranks_, weights, [&](int64_t r, const std::string&, const std::string&, const std::string&) {
    fail("train: after step ", step_, " ", ranks_->name_of(r), " has other weights than ", ranks_->name_of(0),
         ", though both were sent the same; check the memory of these hosts; no checkpoint was written");
  });
  if (settings_.save_optimizer) optimizer_->move_state(true);
  move_stream_states(true);
}

void Trainer::move_stream_states(bool to_first) {
  if (stream_states_.empty()) return;
  for (int64_t r = 1; r < ranks_->count(); ++r)
    for (int64_t micro = micro_batches_of(r).begin; micro < micro_batches_of(r).end; ++micro) {
      nn::Cache& state = stream_states_[static_cast<size_t>(micro)];
      const int64_t from = to_first ? r : 0, to = to_first ? 0 : r;
      if (ranks_->rank() == from) {
        std::vector<std::pair<std::string, Tensor>> states;
        for (const auto& [path, entry] : state.entries) states.emplace_back(path, entry.states);
        ranks_->send(to, &state.length, sizeof state.length);
        send_tensors(*ranks_, to, states);
      } else if (ranks_->rank() == to) {
        state = empty_stream_state();
        ranks_->wait(ranks_->receive(from, &state.length, sizeof state.length));
        for (const auto& [path, states] : receive_tensors(*ranks_, from))
          state.entries[path].states = states.to(device_);
      }
    }
}

}  // namespace orrery::models
