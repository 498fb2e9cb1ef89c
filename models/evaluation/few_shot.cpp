#include "models/evaluation/few_shot.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/types/check.h"

namespace orrery::models {

double FewShot::accuracy() const {
  double sum = 0;
  for (const Seed& seed : seeds) sum += seed.probe.accuracy;
  return sum / static_cast<double>(seeds.size());
}

double FewShot::deviation() const {
  if (seeds.size() < 2) return std::numeric_limits<double>::quiet_NaN();
  double squares = 0;
  for (const Seed& seed : seeds) squares += (seed.probe.accuracy - accuracy()) * (seed.probe.accuracy - accuracy());
  return std::sqrt(squares / static_cast<double>(seeds.size() - 1));
}

void check_few_shot(const ProbeExamples& examples, int64_t shots) {
  const size_t classes = examples.classes.size();
  check(classes >= 2, "evaluate: ", examples.owner, " has ", classes, " class; few_shot requires at least 2");
  check(!examples.test_labels.empty(), "evaluate: ", examples.owner,
        " has no test examples; give some with --validation_data=PATH, or raise --validation_fraction");
  check_shots(examples.owner, examples.classes, examples.train_labels, shots);
}

FewShot evaluate_few_shot(const ProbeExamples& examples, const FeatureReader& read, const FewShotSettings& settings,
                          const std::function<void(double fraction)>& progress) {
  using Split = ProbeExamples::Split;
  check_few_shot(examples, settings.shots);
  const auto classes = static_cast<int64_t>(examples.classes.size());
  FewShot all{.shots = settings.shots, .classes = classes, .layer = read.layer(), .notes = examples.notes};
  std::vector<std::vector<int64_t>> drawn;
  for (int64_t seed = 1; seed <= settings.seeds; ++seed) {
    drawn.push_back(draw_shots(examples.train_labels, classes, settings.shots, static_cast<uint64_t>(seed)));
    all.indices.insert(all.indices.end(), drawn.back().begin(), drawn.back().end());
  }
  std::sort(all.indices.begin(), all.indices.end());
  all.indices.erase(std::unique(all.indices.begin(), all.indices.end()), all.indices.end());
  std::vector<int64_t> tests(examples.test_labels.size());
  std::iota(tests.begin(), tests.end(), int64_t{0});
  const auto report = [&](size_t before) {
    return [&, before](size_t done) {
      if (progress)
        progress(static_cast<double>(before + done) / static_cast<double>(all.indices.size() + tests.size()));
    };
  };
  all.train.x = examples.features(read, Split::train, all.indices, report(0)).to(Dtype::f64);
  for (const int64_t i : all.indices) all.train.labels.push_back(examples.train_labels[static_cast<size_t>(i)]);
  all.test = {examples.features(read, Split::test, tests, report(all.indices.size())).to(Dtype::f64),
              examples.test_labels};
  for (const std::vector<int64_t>& indices : drawn) {
    FewShot::Seed seed;
    for (const int64_t i : indices)
      seed.shots.push_back(static_cast<int32_t>(std::lower_bound(all.indices.begin(), all.indices.end(), i) -
                                                all.indices.begin()));
    seed.probe = fit_probe(rows_of(all.train, seed.shots), all.test, classes, settings.shots);
    all.seeds.push_back(std::move(seed));
  }
  return all;
}

}  // namespace orrery::models
