#include "models/training/resume.h"

#include "engine/base/check.h"

namespace orrery::models {
namespace {

// A run that went on with another text recorded that one; a run of before recorded none.
void check_same_text(const TrainSettings& now, const TrainSettings& then, const CheckpointState& before,
                     const Fingerprint& text) {
  if (now.other_text || before.text.sha256.empty() || before.text == text) return;
  fail("train: ", now.data, " (", text.bytes, " bytes, SHA-256 ", text.sha256.substr(0, 12),
       "...) is not the text that the run in ", now.out, " learned, which was ", then.data, " (", before.text.bytes,
       " bytes, SHA-256 ", before.text.sha256.substr(0, 12),
       "...); resume it with that one, or add --other_text=yes to go on with this one");
}

}  // namespace

void check_same_run(const TrainSettings& now, const CheckpointState& before, const Text& text) {
  const TrainSettings then = make_settings(before.settings);
  check(then.dtype == now.dtype, "train: the run in ", now.out, " has dtype=", then.dtype, ", not ", now.dtype,
        "; resume it with its own");
  const auto check_same = [&](const std::string& key, const std::string& its, const std::string& ours) {
    check(its == ours, "train: the run in ", now.out, " has ", key, "=", its, ", not ", ours,
          "; resume it with its own settings, as in --resume=yes --config=", now.out, "/settings.toml");
  };
  GptSettings before_gpt = resolved(then).gpt, after = resolved(now).gpt;
  after.dropout = before_gpt.dropout;  // no part of the model
  const auto old_values = list_settings(before_gpt), new_values = list_settings(after);
  for (size_t i = 0; i < old_values.size(); ++i)
    check_same(old_values[i].first, old_values[i].second, new_values[i].second);
  check_same("tokenizer", then.tokenizer, now.tokenizer);
  check_same_text(now, then, before, text.fingerprint());
}

}  // namespace orrery::models
