// BLEU against sacrebleu.
#include "models/data/bleu.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "engine/system/files.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;

TEST_CASE("bleu: score, precisions, brevity penalty and tokens equal sacrebleu's") {
  const nlohmann::json cases = nlohmann::json::parse(read_file(ORRERY_SOURCE_DIR "/tests/models/bleu/cases.json"));
  CHECK(cases.size() == 16);
  for (const nlohmann::json& one : cases) {
    const auto translations = one["translations"].get<std::vector<std::string>>();
    const Bleu found = bleu(translations, one["references"].get<std::vector<std::string>>());
    INFO(translations[0]);
    CHECK(found.score == doctest::Approx(one["score"].get<double>()).epsilon(1e-9));
    CHECK(found.brevity_penalty == doctest::Approx(one["brevity_penalty"].get<double>()).epsilon(1e-12));
    for (size_t n = 0; n < 4; ++n)
      CHECK(found.precisions[n] == doctest::Approx(one["precisions"][n].get<double>()).epsilon(1e-9));
    for (size_t i = 0; i < translations.size(); ++i)
      CHECK(tokens_13a(translations[i]) == one["tokens"][i].get<std::vector<std::string>>());
  }
}

TEST_CASE("bleu: each translation needs its reference") {
  const std::vector<std::string> one = {"a"}, two = {"a", "b"};
  testing::expect_error([&] { bleu(two, one); }).names("bleu").names("translations").value(2).value(1);
  CHECK(bleu({}, {}).score == 0);
}
