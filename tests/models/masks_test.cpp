// The setting mask of models: what it refuses, what tokens then know of each other, and what it costs.
#include "models/architectures/masks.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "engine/autograd/autograd.h"
#include "engine/autograd/hooks.h"
#include "engine/ops/ops.h"
#include "models/architectures/encoder_decoder.h"
#include "models/architectures/gpt.h"
#include "models/architectures/stream_model.h"
#include "models/architectures/vit.h"
#include "models/data/text.h"
#include "models/training/generation.h"
#include "models/training/trainer.h"
#include "tests/support/folder.h"
#include "tests/support/message.h"
#include "tests/support/model_cases.h"
#include "tests/support/small_text.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

constexpr int64_t context = 24;

GptSettings settings_of(const std::string& mask) {
  GptSettings s;
  s.layers = 2, s.heads = 2, s.width = 16, s.context = context, s.vocabulary = 9, s.mask = mask;
  return s;
}
std::unique_ptr<Gpt> made(const GptSettings& settings) {
  auto model = std::make_unique<Gpt>(settings);
  nn::initialize(*model, 5);
  nn::convert(*model, Dtype::f64);
  return model;
}
Tensor logits(nn::Module& model, const Tensor& tokens) {
  nn::ForwardPass pass;
  return model(tokens, pass);
}
const std::vector<std::string> causal_masks = {
    "causal", "causal and window(5)", "causal and dilated(3)", "causal and (sinks(2) or window(4))",
    "causal and fixed_blocks(8, 2)", "causal and strided(6)", "causal and (random_blocks(4, r=2) or window(2))"};

}  // namespace

TEST_CASE("mask: a language model refuses a mask under which a token sees what it predicts") {
  const auto refused = [](const std::string& mask) {
    return expect_error<UsageError>([&] { Gpt model(settings_of(mask)); }).names("gpt").names("mask").value(mask);
  };
  refused("full").value("token 0").value("token 1").offers("causal and (full)");
  refused("window(4)").value("token 0").value("token 1").offers("causal and (window(4))");
  refused("causal or dilated(7)").value("token 0").value("token 7").offers("causal and");
  refused("causal or prefix(24)").value(24).offers("shorter").value(24);
  for (const std::string& mask : causal_masks) CHECK_NOTHROW(Gpt(settings_of(mask)));
  CHECK_NOTHROW(Gpt(settings_of("causal or prefix(8)")));
  StreamSettings stream;
  stream.vocabulary = 9, stream.mask = "causal or prefix(4)";
  expect_error<UsageError>([&] { StreamModel model(stream); })
      .names("stream")
      .names("mask")
      .value(4)
      .offers("leave prefix out");
  EncoderDecoderSettings pairs;
  pairs.vocabulary = 9, pairs.decoder_mask = "full";
  expect_error<UsageError>([&] { EncoderDecoder model(pairs); })
      .names("decoder_mask")
      .value("full")
      .offers("causal and");
}

TEST_CASE("mask: two spellings of a mask are one setting") {
  const auto form = [](const std::string& mask) {
    const AnySettings settings(settings_of(mask));
    resolve_masks(settings);
    return settings.as<GptSettings>().mask;
  };
  CHECK(form("causal") == "causal");
  CHECK(form(" ( (causal) )") == "causal");
  CHECK(form("causal  and (sinks(2) or\twindow(4))") == "causal and (sinks(S=2) or window(w=4))");
  CHECK(form("(causal and window(4)) or prefix(3)") == "causal and window(w=4) or prefix(P=3)");
  CHECK(form("causal and (window(4) and sinks(1))") == "causal and (window(w=4) and sinks(S=1))");
  for (const std::string& mask : causal_masks) CHECK(form(form(mask)) == form(mask));
  CHECK(form("causal and of_a_plug_in(3)") == "causal and of_a_plug_in(3)");
  TrainSettings one, other;
  setting_of<std::string>(one.model_settings, "mask") = "causal and window(4)";
  setting_of<std::string>(other.model_settings, "mask") = "causal and (window(w=4))";
  CHECK(list_settings(resolved(one)) == list_settings(resolved(other)));
}

TEST_CASE("mask: no token knows a later one, and hidden keys are unknown") {
  const NoGrad guard;
  const Tensor tokens = some_tokens(1, context);
  for (const std::string& mask : causal_masks) {
    CAPTURE(mask);
    GptSettings s = settings_of(mask);
    s.layers = 1, s.position = parse_spec("none");
    const auto model = made(s);
    const nn::NamedMask named(mask);
    const Tensor before = logits(*model, tokens);
    for (const int64_t changed : {0, 7, 16}) {
      Tensor other = tokens.clone();
      other.mutable_data<int32_t>()[changed] = (tokens.data<int32_t>()[changed] + 1) % 9;
      const Tensor after = logits(*model, other);
      for (int64_t i = 0; i < context; ++i) {
        const bool same = largest_difference(slice(before, 1, i, i + 1), slice(after, 1, i, i + 1)) == 0;
        CHECK(same == !(i == changed || named.visible(i, changed)));
      }
    }
  }
}

TEST_CASE("mask: the first P positions under prefix(P) see each other and bear no loss") {
  const NoGrad guard;
  const auto model = made(settings_of("causal or prefix(6)"));
  const Tensor tokens = some_tokens(1, context);
  Tensor other = tokens.clone();
  other.mutable_data<int32_t>()[5] = (tokens.data<int32_t>()[5] + 1) % 9;
  CHECK(largest_difference(slice(logits(*model, tokens), 1, 0, 1), slice(logits(*model, other), 1, 0, 1)) > 0);
  CHECK(positions_without_loss(AnySettings(settings_of("causal or prefix(6)"))) == 6);
  CHECK(positions_without_loss(AnySettings(settings_of("causal"))) == 0);
  CHECK(positions_without_loss(AnySettings(VitSettings())) == 0);
  Batch batch{some_tokens(2, 10), some_tokens(2, 10).clone()};
  leave_out_first_targets(batch, 6);
  CHECK(count_targets(batch.targets) == 2 * 4);
}

TEST_CASE("mask: a text shorter than the prefix continues as by whole passes, also when the context is full") {
  const NoGrad guard;
  const auto model = made(settings_of("causal or prefix(6)"));
  std::vector<int32_t> whole = {1, 2};
  while (static_cast<int64_t>(whole.size()) < context) {
    const std::vector<double> last = logits(*model, Tensor::from(Shape{1, static_cast<int64_t>(whole.size())}, whole))
                                         .to_vector();
    const auto begin = last.end() - model->vocabulary();
    whole.push_back(static_cast<int32_t>(std::max_element(begin, last.end()) - begin));
  }
  const auto written = [&](int64_t tokens, int64_t keep) {
    return generate(*model, {1, 2}, {.tokens = tokens, .temperature = 0, .keep = keep});
  };
  CHECK(written(context - 2, 0) == whole);
  CHECK(written(3 * context, 2).size() == static_cast<size_t>(3 * context + 2));
}

TEST_CASE("mask: a prefix with all targets of a problem is refused before training") {
  const Folder folder;
  expect_error([&] {
    const Trainer refused(make_settings({{"model", "gpt"},
                                         {"task", "algorithmic"},
                                         {"problem", "copy"},
                                         {"context", "40"},
                                         {"mask", "causal or prefix(33)"},
                                         {"out", folder / "run"}}));
  })
      .names("mask")
      .value(33)
      .names("copy")
      .offers("shorter");
}

TEST_CASE("mask: a run under prefix(P) counts the targets after the prefix only") {
  const Folder folder;
  Trainer trainer(make_settings({{"model", "gpt"},
                                 {"data", write_small_text(folder)},
                                 {"out", folder / "run"},
                                 {"steps", "2"},
                                 {"layers", "1"},
                                 {"width", "16"},
                                 {"heads", "2"},
                                 {"context", "16"},
                                 {"batch_size", "3"},
                                 {"mask", "causal or prefix(5)"}}));
  const std::vector<Tensor> batch = trainer.task().batch(0, 0);
  CHECK(trainer.task().counts(batch).targets == 3 * 11);
  trainer.run();
}

TEST_CASE("mask: steps through a cache equal the whole pass") {
  const NoGrad guard;
  const Tensor tokens = some_tokens(2, context);
  std::vector<std::string> all = causal_masks;
  all.push_back("causal or prefix(6)");
  for (const std::string& mask : all) {
    CAPTURE(mask);
    const auto model = made(settings_of(mask));
    const Tensor whole = logits(*model, tokens);
    nn::Cache cache = model->make_cache();
    for (int64_t begin = 0; const int64_t count : {7, 1, 1, 12, 3}) {
      nn::ForwardPass pass;
      pass.cache = &cache;
      const Tensor part = (*model)(slice(tokens, 1, begin, begin + count), pass);
      CHECK(largest_difference(part, slice(whole, 1, begin, begin + count)) <= 1e-12);
      begin += count;
    }
  }
}

TEST_CASE("mask: blocks of a stream see the keys of the whole stream") {
  const NoGrad guard;
  for (const char* mask : {"causal and dilated(3)", "causal and (sinks(5) or window(4))", "causal and strided(6)"})
    for (const char* attention : {"softmax(span=fixed(12))", "pointwise(relu, span=adaptive_span(12, R=4))"}) {
      CAPTURE(mask);
      CAPTURE(attention);
      StreamSettings s;
      s.layers = 2, s.heads = 2, s.width = 16, s.context = 8, s.cache_length = 12, s.vocabulary = 9;
      s.attention = parse_spec(attention), s.mask = mask;
      StreamModel model(s);
      nn::initialize(model, 3), nn::convert(model, Dtype::f64);
      const Tensor tokens = some_tokens(1, 200), whole = logits(model, tokens);
      nn::Cache cache;
      cache.holds_states = true;
      for (int64_t begin = 0; begin < 200; begin += 8) {
        nn::ForwardPass pass;
        pass.cache = &cache;
        CHECK(largest_difference(model(slice(tokens, 1, begin, begin + 8), pass), slice(whole, 1, begin, begin + 8)) <=
              1e-10);
      }
    }
}

TEST_CASE("mask: inspection sees what a mask hides") {
  const NoGrad guard;
  const std::string mask = "causal and (sinks(2) or window(4))";
  const auto model = made(settings_of(mask));
  const nn::NamedMask named(mask);
  int64_t seen = 0;
  const Hooks hooks({"*.visible"}, [&](const std::string&, const Tensor& visible) {
    const std::vector<double> all = visible.to_vector();
    for (size_t n = 0; n < all.size(); ++n) {
      const auto i = static_cast<int64_t>(n) / context % context, j = static_cast<int64_t>(n) % context;
      CHECK(all[n] == (named.visible(i, j) ? 1 : 0));
    }
    ++seen;
  });
  logits(*model, some_tokens(1, context));
  CHECK(seen == 2);
}

TEST_CASE("mask: the plan counts tables, once for all layers unless they differ") {
  const auto bytes = [](const std::string& mask) { return bytes_of_masks(AnySettings(settings_of(mask)), 3); };
  CHECK(bytes("causal and window(4)") == 0);
  CHECK(bytes("causal and dilated(2)") == nn::mask_table_bytes(context));
  CHECK(bytes("causal and random_blocks") == 3 * nn::mask_table_bytes(context));
  const Folder folder;
  const Trainer trainer(make_settings({{"data", write_small_text(folder)},
                                       {"out", folder / "run"},
                                       {"model", "gpt"},
                                       {"context", "128"},
                                       {"mask", "causal and dilated(2)"}}));
  CHECK(trainer.memory_plan().masks == nn::mask_table_bytes(128));
}

TEST_CASE("mask: a mask that hides every key from some queries is reported") {
  CHECK(mask_notes(AnySettings(settings_of("causal"))).empty());
  const std::vector<std::string> notes =
      mask_notes(AnySettings(settings_of("causal and fixed_blocks(4, 0) and sinks(4)")));
  REQUIRE(notes.size() == 1);
  Message(notes[0]).names("mask").value(20).value(24).names("positions");
  CHECK(notes[0].find("under") == std::string::npos);
}

TEST_CASE("mask: the report of hidden keys counts the own key, spans and slots of the attention") {
  const auto notes = [](const std::string& mask, const std::string& attention, int64_t tokens = context) {
    GptSettings s = settings_of(mask);
    s.attention = parse_spec(attention), s.context = tokens;
    return mask_notes(AnySettings(s));
  };
  const auto check_report = [&](const std::string& mask, const std::string& attention, const std::string& under,
                                int64_t hidden) {
    INFO(mask, " ", attention);
    const std::vector<std::string> all = notes(mask, attention);
    REQUIRE(all.size() == 1);
    Message(all[0]).names("mask").value(mask).names("under " + under).value(hidden).value(context).names("positions");
  };
  check_report("causal and window(1)", "softmax(attend_to_self=no)", "attend_to_self=no", 24);
  check_report("causal and dilated(5)", "softmax(attend_to_self=no)", "attend_to_self=no", 5);
  // Key 1 is the last sink, 3 tokens back at most; with its own key hidden, the first token sees none either.
  check_report("causal and sinks(2)", "softmax(span=fixed(4), attend_to_self=yes)", "span=fixed(S=4)", 19);
  check_report("causal and sinks(2)", "softmax(span=fixed(4))", "attend_to_self=no and span=fixed(S=4)", 19);
  check_report("causal and sinks(2)", "softmax(span=adaptive_span(4))",
               "attend_to_self=no and span=adaptive_span(S=4, R=32)", 19);
  for (const char* attention : {"softmax(persistent=4)", "pointwise(relu, persistent=slots(3, split=yes))"})
    CHECK(notes("causal and fixed_blocks(4, 0) and sinks(4)", attention).empty());
  // That the first token sees none is what attend_to_self=no means.
  for (const char* mask : {"causal", "causal and window(5)", "causal and sinks(1)"})
    CHECK(notes(mask, "softmax(attend_to_self=no)").empty());
  CHECK(notes("causal and sinks(2)", "softmax").empty());
}

TEST_CASE("mask: the report of hidden keys covers long contexts, streams, decoders and masks that differ by layer") {
  GptSettings s = settings_of("causal and prefix(5000)");
  s.context = 6000;
  std::vector<std::string> notes = mask_notes(AnySettings(s));
  REQUIRE(notes.size() == 1);
  Message(notes[0]).value("1,000").value("6,000").names("positions");
  CHECK(notes[0].find("first") == std::string::npos);
  s.mask = "causal and sinks(2)", s.context = 1 << 20;
  CHECK(mask_notes(AnySettings(s)).empty());
  s.mask = "causal and prefix(4)";  // too many pairs to try them all
  notes = mask_notes(AnySettings(s));
  REQUIRE(notes.size() == 1);
  Message(notes[0]).names("of the first");

  StreamSettings stream;  // 64 tokens, and 256 cached ones before them
  stream.mask = "causal and sinks(2)", stream.attention = parse_spec("softmax(span=fixed(16))");
  notes = mask_notes(AnySettings(stream));
  REQUIRE(notes.size() == 1);
  Message(notes[0]).names("span=fixed(S=16)").value(303).names("of the first").value(320);

  EncoderDecoderSettings pairs;
  pairs.context = context, pairs.decoder_mask = "causal and fixed_blocks(4, 0) and sinks(4)";
  pairs.attention = parse_spec("softmax(persistent=2)"), pairs.decoder_attention = parse_spec("softmax");
  notes = mask_notes(AnySettings(pairs));
  REQUIRE(notes.size() == 1);
  Message(notes[0]).names("decoder_mask").value(20).value(24);
  pairs.decoder_attention = parse_spec("same");
  CHECK(mask_notes(AnySettings(pairs)).empty());

  notes = mask_notes(AnySettings(settings_of("causal and random_blocks(4, r=1) and window(2)")));
  REQUIRE(notes.size() == 1);
  Message(notes[0]).names("first layer");
}

TEST_CASE("mask: what the formulas of the library state of themselves holds with all settings") {
  for (const std::string& name : nn::masks().names()) CHECK(check_mask(name).contradiction == "");
  const MaskCheck blocks = check_mask("fixed_blocks");
  const auto tried = [&](const std::string& spec) { return std::ranges::count(blocks.specs, spec) == 1; };
  CHECK(blocks.specs[0] == "fixed_blocks");
  CHECK(tried("fixed_blocks(c=0)"));
  CHECK(tried("fixed_blocks(l=16777216)"));
  CHECK(tried("fixed_blocks(l=16777216, c=16777216)"));
  CHECK_FALSE(tried("fixed_blocks(c=16777216)"));  // it must be at most l
  Message(blocks.positions).value("2,048").value(512).value("1,048,576");
}
