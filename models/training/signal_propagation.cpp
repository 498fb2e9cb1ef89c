#include "models/training/signal_propagation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "engine/autograd/autograd.h"
#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "engine/types/format.h"
#include "models/metrics/base/padding.h"
#include "models/modules.h"
#include "nn/base/spec_family.h"
#include "nn/base/sublayer.h"
#include "nn/diagnostics/diagnostics.h"
#include "nn/diagnostics/predictions.h"
#include "nn/optimizers/base/optimizer.h"

namespace orrery::models {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

struct Mean {  // mean of squares over all values added
  double sum = 0, count = 0;
  void add(const Tensor& x) {
    const Tensor square = Tensor::zeros(Shape{}, Dtype::f64, x.device());
    nn::sum_of_squares(x, square);
    sum += square.item(), count += static_cast<double>(x.numel());
  }
  double value() const { return count > 0 ? sum / count : none; }
};

// The identity, y = x and dx = dy, which records the mean square of dy.
struct GradientMeter {
  static constexpr const char* name = "probe";
  Mean* gradient;
  std::string hook_name;
  std::vector<int64_t> lengths;
  Tensor forward(Saved&, const Tensor& x) const { return x.detach(); }
  Gradients<1> backward(const Saved&, const Tensor& dy) const {
    gradient->add(without_padding(hook_name, dy, lengths));
    return {dy};
  }
};

struct Scores {  // scores of an attention or of slots
  double row_variance = none;
  Mean all;
  std::vector<nn::QueryGroup> queries;
};

// Summarizes scores (B, ..., queries, columns), 0 where masked: whole sequences up to about
// `enough` values; of the queries of sequence b the first lengths[b], or all.
Scores scores_of(const Tensor& given, const std::vector<int64_t>& lengths) {
  constexpr int64_t enough = 1 << 22;
  const int64_t sequences =
                    std::clamp<int64_t>(enough * given.size(0) / std::max<int64_t>(1, given.numel()), 1, given.size(0)),
                columns = given.size(-1), queries = given.size(-2);
  Scores found;
  std::map<std::pair<int64_t, int64_t>, double> alike;  // by number of keys and position
  double variances = 0, rows_of_two = 0, real = 0;
  int64_t rows = 0;
  const int64_t of_sequence = given.numel() / std::max<int64_t>(1, given.size(0) * columns);
  nn::for_each_row_chunk(given.slice(0, sequences), [&](const std::vector<double>& s) {
    for (auto begin = s.begin(); begin != s.end(); begin += columns, ++rows) {
      if (!lengths.empty() && rows % queries >= lengths[static_cast<size_t>(rows / of_sequence)]) continue;
      double n = 0, sum = 0, squares = 0;
      ++real;
      for (auto at = begin; at != begin + columns; ++at) n += *at != 0, sum += *at, squares += *at * *at;
      alike[{static_cast<int64_t>(n), std::min(columns, rows % queries + 1 + columns - queries)}] += 1;
      found.all.sum += squares, found.all.count += n;
      if (n < 2) continue;
      variances += (squares - sum * sum / n) / (n - 1);
      rows_of_two += 1;
    }
  });
  if (rows_of_two > 0) found.row_variance = variances / rows_of_two;
  for (const auto& [key, count] : alike)
    found.queries.push_back({.keys = static_cast<double>(key.first),
                             .keys_up_to_query = static_cast<double>(key.second),
                             .all = static_cast<double>(columns),
                             .fraction = count / real});
  return found;
}

bool is_normalization(const std::string& path) { return path.ends_with("norm"); }

// Records values and gradients of a forward and a backward pass through a model's modules.
class SignalRecorder {
 public:
  SignalRecorder(nn::Module& root, const nn::ForwardPass* pass) : modules_(modules_of(root)), padding_(root, pass) {
    std::vector<std::string> replaced = {"*.stream",  "*.residual",  "stream", "residual",
                                         "embedding", "*.embedding", "logits", "*.logits"},
                             observed;
    for (const auto& [path, module] : modules_) {
      const bool sublayer = dynamic_cast<nn::Sublayer*>(module) != nullptr;
      for (const char* name : {"query", "key", "value", "head_output", "pre_activation", "hidden", "output"})
        if (sublayer) replaced.push_back(path + "." + name);
      if (sublayer) observed.push_back(path + ".scores");
      if (is_normalization(path)) replaced.push_back(path + ".input"), replaced.push_back(path + ".output");
    }
    if (!observed.empty())
      scores_hooks_.emplace(observed, [this](const std::string& name, const Tensor& value) {
        scores_.emplace(name, scores_of(value, padding_.lengths(name, value)));
      });
    hooks_.emplace(replaced, Hooks::Replace{[this](const std::string& name, const Tensor& value) {
                     return is_floating(value.dtype()) ? recorded(name, value) : Tensor();
                   }});
  }

  SignalPropagation result() const {
    SignalPropagation propagation;
    for (const std::string& name : order_) {
      const Signal& of = signals_.at(name);
      propagation.values.push_back({name, of.forward.value(), of.backward.value()});
    }
    for (const auto& [path, module] : modules_) add_ratios(propagation, path, *module);
    return propagation;
  }

 private:
  struct Signal {
    Mean forward, backward;
    int64_t channels = 0;
    Scores rows;  // of pre_activation, treated as the scores of a softmax over slots
  };

  Tensor recorded(const std::string& name, const Tensor& value) {
    const auto [entry, fresh] = signals_.try_emplace(name);
    if (fresh) order_.push_back(name);
    Signal& of = entry->second;
    const std::vector<int64_t> lengths = padding_.lengths(name, value);
    of.forward.add(without_padding(name, value, lengths)), of.channels = value.size(-1);
    if (fresh && name.ends_with(".pre_activation") && value.shape().rank() >= 2)
      of.rows = scores_of(value.detach(), lengths);
    return record(GradientMeter{&of.backward, name, lengths}, value);
  }

  double size(const std::string& name) const {
    const auto found = signals_.find(name);
    return found == signals_.end() ? none : found->second.forward.value();
  }
  double gradient(const std::string& name) const {
    const auto found = signals_.find(name);
    return found == signals_.end() ? none : found->second.backward.value();
  }

  nn::InputStats input_stats(const std::string& path) const {
    nn::InputStats given{.mean_square = none, .row_variance = none};
    if (const auto scores = scores_.find(path + ".scores"); scores != scores_.end()) {
      given.mean_square = scores->second.all.value(), given.row_variance = scores->second.row_variance;
      given.queries = scores->second.queries;
    } else if (const auto hidden = signals_.find(path + ".pre_activation"); hidden != signals_.end()) {
      given.mean_square = hidden->second.forward.value(), given.row_variance = hidden->second.rows.row_variance;
    } else if (const auto input = signals_.find(path + ".input"); input != signals_.end()) {
      given.mean_square = input->second.forward.value(), given.channels = input->second.channels;
    }
    return given;
  }

  // Adds the measured ratios with their predictions.
  void add_ratios(SignalPropagation& propagation, const std::string& path, const nn::Module& module) const {
    const nn::InputStats given = input_stats(path);
    const std::vector<nn::Prediction> predictions =
        std::isnan(given.mean_square) ? std::vector<nn::Prediction>{} : nn::predictions_of(module, given);
    const auto add = [&](const char* ratio, double numerator, double denominator) {
      const auto same = std::find_if(predictions.begin(), predictions.end(),
                                     [&](const nn::Prediction& p) { return std::string_view(p.ratio) == ratio; });
      const bool predicted = same != predictions.end();
      if (predicted && same->denominator > 0) denominator = same->denominator;
      if (std::isnan(numerator) || std::isnan(denominator)) return;
      propagation.ratios.push_back({path, ratio, numerator / denominator, predicted ? same->value : none,
                                    predicted ? same->formula : "", predicted ? same->v : none});
    };
    add(nn::ratio::head_output, size(path + ".head_output"), size(path + ".value"));
    add(nn::ratio::hidden, size(path + ".hidden"), size(path + ".pre_activation"));
    add(nn::ratio::slots, size(path + ".output"), none);
    add(nn::ratio::normalized, size(path + ".output"), size(path + ".input"));
    add(nn::ratio::gradient, gradient(path + ".input"), gradient(path + ".output"));
  }

  std::vector<std::pair<std::string, nn::Module*>> modules_;
  Padding padding_;
  std::vector<std::string> order_;
  std::map<std::string, Signal> signals_;
  std::map<std::string, Scores> scores_;
  std::optional<Hooks> scores_hooks_, hooks_;
};

TrainSettings without_dropout(TrainSettings s) {
  const std::vector<Setting> members = settings_of(s);
  for (const Setting& each : members)
    if (each.key == "dropout" || each.key.ends_with(".dropout"))
      set_setting(std::span<const Setting>(members), "probe", each.key, "0");
  nn::change_specs(members, [](const nn::SpecFamily& family, const Spec& spec) {
    Spec all = family.resolved(spec);
    for (Spec::Item& item : all.items)
      if (item.key == "dropout") item.value = Spec{"0", {}};
    return all;
  });
  return s;
}

std::unique_ptr<nn::Module> copy_without_dropout(const TrainSettings& settings, nn::Module& model) {
  std::unique_ptr<nn::Module> copy = make_model(without_dropout(settings));
  nn::convert(*copy, parse_dtype(settings.dtype));
  nn::move(*copy, nn::device_of(model));
  const auto parameters = nn::parameters_of(model), copies = nn::parameters_of(*copy);
  const auto buffers = nn::buffers_of(model), of_copy = nn::buffers_of(*copy);
  check(parameters.size() == copies.size() && buffers.size() == of_copy.size(),
        "signal_propagation: the model without dropout has other parameters; leave --signal_propagation out");
  for (size_t i = 0; i < copies.size(); ++i) copies[i].parameter->value.copy_from(parameters[i].parameter->value);
  for (size_t i = 0; i < of_copy.size(); ++i) of_copy[i].second->copy_from(*buffers[i].second);
  return copy;
}

}  // namespace

const SignalPropagation::Value* SignalPropagation::find(const std::string& name) const {
  const auto found = std::find_if(values.begin(), values.end(), [&](const Value& value) { return value.name == name; });
  return found == values.end() ? nullptr : &*found;
}

std::vector<ResidualRow> residual_rows(const SignalPropagation& propagation) {
  std::vector<ResidualRow> steps;
  const auto ends_with = [](const std::string& name, const std::string& last) {
    return name == last || name.ends_with("." + last);
  };
  for (const SignalPropagation::Value& value : propagation.values) {
    if (ends_with(value.name, "embedding") || ends_with(value.name, "logits"))
      steps.push_back({value.name, nullptr, nullptr, &value});
    if (!ends_with(value.name, "residual")) continue;
    const std::string path = value.name.substr(0, value.name.rfind('.'));
    steps.push_back({path, propagation.find(path + ".stream"), propagation.find(path + ".output"), &value});
  }
  return steps;
}

std::string cell(double x) { return std::isnan(x) ? "-" : scientific(x, 2); }
std::string cell(const SignalPropagation::Value* value, double SignalPropagation::Value::* which) {
  return value ? cell(value->*which) : "-";
}
std::vector<std::string> cells(const ResidualRow& row) {
  std::vector<std::string> all = {row.path};
  for (const auto which : {&SignalPropagation::Value::mean_square, &SignalPropagation::Value::gradient})
    for (const SignalPropagation::Value* const value : {row.before, row.output, row.after})
      all.push_back(cell(value, which));
  return all;
}
std::vector<std::string> cells(const SignalPropagation::Ratio& r) {
  const std::string quotient = std::isnan(r.predicted) ? "-" : significant(r.measured / r.predicted, 3);
  return {r.path, r.ratio, cell(r.measured), cell(r.predicted), quotient, r.formula, cell(r.v)};
}

SignalPropagation measure_modules(nn::Module& root, const std::function<Tensor()>& run, const nn::ForwardPass* pass) {
  const SignalRecorder recorder(root, pass);
  run().backward();
  return recorder.result();
}

SignalPropagation measure_signals(const TrainSettings& s, const Task& task, nn::Module& model,
                                  std::span<const Tensor> batch) {
  const std::unique_ptr<nn::Module> copy = copy_without_dropout(s, model);
  nn::Cache stream_state = empty_stream_state();
  nn::ForwardPass pass;
  pass.training = true, pass.rng = RandomKey{static_cast<uint64_t>(s.seed), 0}.derive("probe");
  if (task.stream_context() > 0) pass.cache = &stream_state;
  for (const auto& [name, weight] : s.losses.by_name)
    if (weight > 0) pass.requested_losses.insert(name);
  const auto run = [&] {
    Tensor loss = task.loss(*copy, batch, pass);
    for (const nn::ForwardPass::Loss& each : pass.losses)
      loss = loss + scale(each.value.to(loss.dtype()), s.losses.by_name.at(each.name));
    return loss;
  };
  return measure_modules(*copy, run, &pass);
}

}  // namespace orrery::models
