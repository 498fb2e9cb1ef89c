#include "models/data/training_data.h"

#include <algorithm>
#include <utility>

#include "models/data/prepared.h"
#include "models/data/text.h"

namespace orrery::models {
namespace {

using Range = std::pair<int64_t, int64_t>;

int64_t count_of_union(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end());
  int64_t count = 0, reached = 0;
  for (const auto& [begin, end] : ranges) {
    count += std::max<int64_t>(0, end - std::max(begin, reached));
    reached = std::max(reached, end);
  }
  return count;
}

// Returns the tokens [begin, end) of the text's part `part` that the run trained on.
std::vector<Range> trained_in(const Text& text, const TextPart& part, const TrainingData& run, int64_t begin,
                              int64_t end) {
  std::vector<Range> ranges;
  const auto add = [&](int64_t first, int64_t last) {  // of the data with the part's fingerprint
    const Range range(std::max({part.begin, begin, first - part.offset + part.begin}),
                      std::min({part.end, end, last - part.offset + part.begin}));
    if (range.first < range.second) ranges.push_back(range);
  };
  if (part.fingerprint == run.fingerprint) {
    const bool whole = part.fingerprint == text.fingerprint();
    add(0, whole ? text.training_tokens(run.held_out) : training_tokens(part.all, run.held_out));
  }
  for (const TrainedPart& each : run.parts)
    if (each.fingerprint == part.fingerprint) add(each.begin, each.end);
  return ranges;
}

}  // namespace

TrainingOverlap trained_tokens(const Text& text, int64_t begin, int64_t end, std::span<const TrainingData> runs) {
  TrainingOverlap share;
  std::vector<Range> all;
  bool own = false, by_fraction = true;
  for (const TrainingData& run : runs)
    for (const TextPart& part : text.parts()) {
      const std::vector<Range> ranges = trained_in(text, part, run, begin, end);
      if (ranges.empty()) continue;
      all.insert(all.end(), ranges.begin(), ranges.end());
      own |= !run.of_init_from;
      by_fraction &= run.fingerprint == text.fingerprint() && run.held_out > 0;
      share.held_out = share.held_out == 0 ? run.held_out : std::min(share.held_out, run.held_out);
    }
  share.trained = count_of_union(std::move(all)), share.of_init_from = !own;
  if (!by_fraction) share.held_out = 0;
  return share;
}

std::vector<TrainedPart> trained_parts(const Text& text, int64_t trained) {
  constexpr size_t most = 1000;
  std::vector<TrainedPart> parts;
  for (const TextPart& part : text.parts())
    if (part.fingerprint != text.fingerprint() && part.begin < trained)
      parts.push_back({part.fingerprint, part.offset, part.offset + std::min(part.end, trained) - part.begin});
  if (parts.size() > most) parts.clear();
  return parts;
}

TrainingOverlap most_trained(std::span<const TrainingData> runs,
                             const std::function<int64_t(const TrainingData&)>& trained) {
  TrainingOverlap most;
  for (const TrainingData& run : runs)
    if (const int64_t count = trained(run); count > most.trained) most = {count, run.of_init_from, run.held_out};
  return most;
}

}  // namespace orrery::models
