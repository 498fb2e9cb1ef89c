// Logit lens, sizes and direct logit attribution (r_k, a_k, c_k as in residual_stream.h).
//
// Logit lens (nostalgebraist 2020, "interpreting GPT: the logit lens"): logits(r_k), the model's
// prediction if it ended after sublayer k. All r_k go through the model's own final layers, in few
// matrix products; r_n itself gives the logits.
//
// Sizes: the root mean square of r_k (TransformerLens: resid_mid, resid_post; with
// post-normalization, the normalization's input) and of a_k (attn_out, mlp_out).
//
// Direct contribution of sublayer k to the logit z of the target y:  z_y(r_n) - z_y(r_n - c_k a_k),
// the decrease of z_y if only c_k a_k is removed from the last state. If only a linear head follows
// r_n, it is W_y c_k a_k, the direct logit attribution (Elhage et al. 2021,
// transformer-circuits.pub/2021/framework; TransformerLens: logit_attrs). Contributions, the
// embedding's and the head's bias then add up to z_y. With a final normalization they do not: its
// statistics change with the removed term; linear attribution keeps them fixed. With
// post-normalization the last state is not a sum of a_k, so there is no direct contribution.
#include <algorithm>
#include <set>

#include "engine/system/parallel.h"
#include "engine/types/wording.h"
#include "models/inspection/base/answers.h"
#include "models/inspection/base/residual_stream.h"

namespace orrery::models {
namespace {

std::string said_of_end(const std::vector<std::string>& end) {
  if (end.empty()) return "Each state goes directly through the head, because no normalization precedes the head.";
  return "Each state goes through the model's final layers: " + join(end, ", ") + ", then the head.";
}

MapView map_of(const std::string& figure, const std::vector<std::string>& rows, const Subject::Words& columns,
               const std::vector<double>& values) {
  const Shape shape{1, static_cast<int64_t>(rows.size()), static_cast<int64_t>(columns.size())};
  MapView map{.figure = figure, .rows = rows, .columns = columns, .values = Tensor::from(shape, values, Dtype::f64)};
  map.axes = {"", "position"}, map.none = "no target";
  return map;
}

// Summary of a row of logits. The logits of all states need too much memory for a large vocabulary.
struct Verdict {
  int32_t likeliest;
  double chance;           // ln p of `likeliest`
  double of_answer = NAN;  // ln p of the target; NaN: no target
  int64_t rank = 0;
};
using Verdicts = std::vector<Verdict>;  // one per row

Verdicts verdicts_of(const Tensor& logits, const Answers& answers) {
  constexpr int64_t rows_at_once = 8;
  Verdicts all(static_cast<size_t>(logits.size(0)));
  parallel_for(logits.size(0), rows_at_once, [&](int64_t begin, int64_t end) {
    std::vector<double> z(static_cast<size_t>(logits.size(1)));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t first_of_row = row * logits.size(1);
      if (logits.dtype() == Dtype::f64)
        std::copy_n(logits.data<double>() + first_of_row, z.size(), z.begin());
      else
        std::copy_n(logits.data<float>() + first_of_row, z.size(), z.begin());
      const int32_t first = likeliest(z), answer = answers.of_rows[static_cast<size_t>(row)];
      Verdict& verdict = all[static_cast<size_t>(row)];
      verdict = {first, log_probability(z, first)};
      if (answer < 0) continue;
      verdict.of_answer = verdict.chance + z[static_cast<size_t>(answer)] - z[static_cast<size_t>(first)];
      verdict.rank = rank_of(z, answer);
    }
  });
  return all;
}

// The states of the last stream, and the prediction from each of them.
struct Lens {
  std::vector<std::string> layers = {};
  std::vector<Verdicts> verdicts = {};  // per layer
  Answers answers;
  Subject::Words words;
  int64_t choices;  // number of tokens or classes
};

Lens lens_of(const Subject& subject, const ResidualStream& stream, const Tensor& logits, const LookSettings& s) {
  Lens lens{.answers = answers_to(subject, logits),
            .words = words_of_rows(subject, stream.last().path, logits.size(0)),
            .choices = logits.size(1)};
  std::vector<Tensor> states;
  for (const ResidualState& state : stream.states) lens.layers.push_back(state.path), states.push_back(state.value);
  each_logits(subject, stream, states, [&](size_t, const Tensor& found) {
    lens.verdicts.push_back(verdicts_of(found, lens.answers));
    s.tell("logit lens", lens.verdicts.size(), states.size());
  });
  return lens;
}

// Returns row s.place; if it is -1, the row whose target has the smallest p, and the last row.
std::set<size_t> chosen_rows(const Lens& lens, const LookSettings& s) {
  const auto rows = static_cast<int64_t>(lens.words.size());
  check(s.place < rows, "inspect: --position=", s.place, " is out of range; positions have numbers from 0 to ",
        rows - 1);
  if (s.place >= 0) return {static_cast<size_t>(s.place)};
  size_t hardest = lens.answers.last();
  const Verdicts& end = lens.verdicts.back();
  for (size_t row = 0; row < end.size(); ++row)
    if (end[row].of_answer < end[hardest].of_answer) hardest = row;
  return {hardest, lens.words.size() - 1};
}

View table_of_row(const Subject& subject, const Lens& lens, size_t row) {
  const int32_t answer = lens.answers.of_rows[row];
  TableView table{{"state after", "top prediction", "p"}, "llr", {}};
  if (answer >= 0) table.columns.insert(table.columns.end(), {"rank", "-ln p"}), table.alignment += "rr";
  for (size_t layer = 0; layer < lens.layers.size(); ++layer) {
    const Verdict& v = lens.verdicts[layer][row];
    table.rows.push_back({lens.layers[layer], subject.answer(v.likeliest), fixed(std::exp(v.chance), 3)});
    if (answer < 0) continue;
    table.rows.back().push_back(std::to_string(v.rank)), table.rows.back().push_back(fixed(-v.of_answer, 3));
  }
  const std::string asked = answer < 0 ? "The target is unknown."
                                       : text("Rank and -ln p of ", lens.answers.described(), ", ",
                                              subject.answer(answer), ", among ", lens.choices, ".");
  return {"Logit lens", "", text("Predictions at position ", row, ", ", lens.words[row]), asked, std::move(table)};
}

void add_lens(std::vector<View>& views, const Subject& subject, const Lens& lens, const std::string& end,
              const LookSettings& s) {
  std::vector<double> chances, ranks, tops;
  TableView words{{""}, "l", {}};
  for (size_t row = 0; row < lens.words.size(); ++row) words.rows.push_back({lens.words[row]});
  for (size_t layer = 0; layer < lens.layers.size(); ++layer) {
    words.columns.push_back(lens.layers[layer]), words.alignment += 'l';
    for (size_t row = 0; row < lens.words.size(); ++row) {
      const Verdict& v = lens.verdicts[layer][row];
      chances.push_back(v.of_answer), ranks.push_back(v.rank > 0 ? static_cast<double>(v.rank) : NAN);
      tops.push_back(std::exp(v.chance));
      words.rows[row].push_back(subject.answer(v.likeliest));
    }
  }
  const std::string described = lens.answers.described();
  std::vector<std::pair<std::string, double>> told;
  for (size_t layer = 0; layer < lens.layers.size(); ++layer) {
    double sum = 0, count = 0;
    for (const Verdict& v : lens.verdicts[layer])
      if (!std::isnan(v.of_answer)) sum -= v.of_answer, ++count;
    told.emplace_back("logit_lens/lens_loss/" + lens.layers[layer], sum / count);
  }
  views.push_back({"Logit lens", "logit_lens/log_probability", "ln p of " + described,
                   "Prediction of the model if it ended after each sublayer.  " + end,
                   map_of("ln p", lens.layers, lens.words, chances), false, std::move(told)});
  for (const size_t row : chosen_rows(lens, s)) views.push_back(table_of_row(subject, lens, row));
  const auto draw = [&](const char* file, const std::string& title, const std::string& figure,
                        const std::vector<double>& values) {
    views.push_back(
        {"Logit lens", text("logit_lens/", file), title, "", map_of(figure, lens.layers, lens.words, values), true});
  };
  draw("rank", "Rank of " + described, "rank", ranks);
  draw("likeliest", "Probability of the top prediction", "p", tops);
  views.push_back({"Logit lens", "", "Top prediction", end, std::move(words), true});
}

void add_sizes(std::vector<View>& views, const std::vector<ResidualStream>& streams) {
  TableView table{{"state after", "size", "added", "added / size"}, "lrrr", {}};
  std::vector<View> drawn;
  std::vector<std::pair<std::string, double>> told;
  for (const ResidualStream& stream : streams) {
    LineView lines{"state after", "root mean square", {}};
    LineView::Line sizes{"state", {}, {}}, added{"added", {}, {}};
    for (size_t k = 0; k < stream.states.size(); ++k) {
      const ResidualState& state = stream.states[k];
      const double size = root_mean_square(state.value), own = root_mean_square(state.added);
      lines.places.push_back(state.path);
      sizes.x.push_back(static_cast<double>(k)), sizes.y.push_back(size);
      told.emplace_back("logit_lens/size/" + state.path, size);
      if (k > 0) told.emplace_back("logit_lens/added/" + state.path, own);
      if (k > 0) added.x.push_back(static_cast<double>(k)), added.y.push_back(own);
      table.rows.push_back({state.path, significant(size, 4), k > 0 ? significant(own, 4) : "",
                            k > 0 && size > 0 ? fixed(own / size, 3) : ""});
    }
    lines.lines.push_back(std::move(sizes)), lines.lines.push_back(std::move(added));
    const std::string& begin = stream.states[0].path;
    const std::string of = streams.size() == 1 ? "" : begin.substr(0, begin.find('.'));
    drawn.push_back({"Logit lens", "logit_lens/size" + (of.empty() ? "" : "_" + of),
                     "Sizes along the residual stream" + (of.empty() ? "" : " of the " + of), "", std::move(lines),
                     true});
  }
  std::string said =
      "Size: root mean square of the residual stream after each sublayer.  Added: that of the sublayer's own term.";
  if (!streams.back().is_sum)
    said +=
        "  Normalizations act on the stream itself, so its last state is not the sum of the added terms, and none has "
        "a direct contribution to a logit.";
  views.push_back({"Logit lens", "", "Size of the residual stream", said, std::move(table), false, std::move(told)});
  std::move(drawn.begin(), drawn.end(), std::back_inserter(views));
}

void add_contributions(std::vector<View>& views, const Subject& subject, const ResidualStream& stream, const Lens& lens,
                       bool is_linear) {
  BarView bars{"logit", {}};
  std::vector<double> values;
  std::vector<std::string> components;
  std::vector<std::pair<std::string, double>> told;
  const Tensor& last = stream.last().value;
  std::vector<Tensor> states = {last, Tensor::zeros(last.shape(), last.dtype())};  // the full last state, and zeros
  for (const ResidualState& state : stream.states) states.push_back(plus(last, -state.in_end, state.added));
  const std::vector<std::vector<double>> logits = answer_logits(subject, stream, states, lens.answers.of_rows);
  const std::vector<double>&whole = logits[0], &bias = logits[1];
  const auto add = [&](const std::string& name, const auto& of_row) {
    double total = 0, count = 0;
    components.push_back(name);
    for (size_t row = 0; row < whole.size(); ++row) {
      values.push_back(of_row(row));  // NaN without a target
      if (lens.answers.of_rows[row] >= 0) total += values.back(), ++count;
    }
    bars.bars.push_back({.name = name, .value = total / count});
    if (name.find(' ') == std::string::npos) told.emplace_back("logit_lens/contribution/" + name, total / count);
  };
  for (size_t k = 0; k < stream.states.size(); ++k)
    add(stream.states[k].path, [&](size_t row) { return whole[row] - logits[k + 2][row]; });
  const auto there = [](double logit) { return logit != 0 && !std::isnan(logit); };
  if (is_linear && std::any_of(bias.begin(), bias.end(), there))
    add("head bias", [&](size_t row) { return bias[row]; });
  const std::string title = "Direct contribution to the logit of " + lens.answers.described(),
                    said = std::string("Decrease of the logit if a sublayer's term is removed from the last state") +
                           (is_linear ? "; the contributions add up to the logit."
                                      : "; because of the final normalization they do not add up to the logit.");
  MapView map = map_of("logit", components, lens.words, values);
  map.has_sign = true;
  views.push_back(
      {"Logit lens", "", title, said + "  Means over the positions.", std::move(bars), false, std::move(told)});
  views.push_back(
      {"Logit lens", "logit_lens/contribution", "Direct contribution at each position", "", std::move(map)});
}

void look(std::vector<View>& views, const Subject& subject, const LookSettings& s) {
  const auto [streams, end, logits] = observe_streams(subject);
  if (streams.empty()) return;
  const ResidualStream& stream = streams.back();
  const Lens lens = lens_of(subject, stream, logits, s);
  add_lens(views, subject, lens, said_of_end(end), s);
  add_sizes(views, streams);
  if (stream.is_sum) add_contributions(views, subject, stream, lens, end.empty());
}

REGISTER_LOOK(logit_lens,
              {.name = "logit_lens",
               .description = "logit lens, sizes of the residual stream, direct contribution of each sublayer "
                              "to the logit",
               .look = look});

}  // namespace
}  // namespace orrery::models
