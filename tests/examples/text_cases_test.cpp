// Texts, tokenizers and models of other programs that once failed, through the program. The values
// are from transformers (tests/cases/README.md).
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/examples/report_data.h"
#include "tests/examples/training.h"
#include "tests/support/logged_rows.h"
#include "tests/support/message.h"

namespace fs = std::filesystem;
using orrery::testing::expect_error;
using orrery::testing::Message;
using Words = std::vector<std::string>;

namespace {

const std::string cases = ORRERY_SOURCE_DIR "/tests/cases/";

std::string imported(const Folder& folder, const std::string& name, const Words& notes = {}) {
  const Outcome outcome = run_orrery({"import", cases + name, "--out=" + (folder / name)});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  Message message(outcome.err);
  for (const std::string& term : notes) message.names(term);
  return "--checkpoint=" + (folder / name);
}

// Returns the text of the most likely tokens after a prompt; stderr must name the terms `notes`.
std::string most_likely(const std::string& run, const std::string& prompt, int tokens, const Words& more = {},
                        const Words& notes = {}) {
  const Outcome outcome = run_orrery(
      Words{"generate", run, "--prompt=" + prompt, "--temperature=0", "--tokens=" + std::to_string(tokens)} + more);
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  Message message(outcome.err);
  for (const std::string& term : notes) message.names(term);
  return outcome.out;
}

nlohmann::json report_of(const std::string& run, const Words& more) {
  const Outcome outcome = run_orrery(Words{"report", run} + more);
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  return report_data(read_file(run + "/report.html"));
}
std::vector<std::string> samples_of(const std::string& run, const Words& more) {
  std::vector<std::string> texts;
  const auto samples = report_section(report_of(run, more), "Generated samples");
  for (const auto& item : samples["items"]) texts.push_back(item["text"]);
  return texts;
}

}  // namespace

TEST_CASE("generate: token ids beyond the tokenizer's vocabulary are not sampled") {
  const Folder folder;
  const std::string run = folder / "run";
  REQUIRE(run_orrery(Words{"train", "--model=gpt", "--vocabulary=200", "--data=" + shakespeare, "--out=" + run,
                           "--evaluate_every=0", "--metrics=none"} +
                     tiny)
              .code == 0);
  for (const char* const seed : {"--seed=1", "--seed=2"}) {
    const Outcome written = run_orrery({"generate", "--checkpoint=" + run, "--prompt=First", "--tokens=50", seed});
    CHECK_MESSAGE(written.code == 0, written.err);
    CHECK(written.out.size() == 5 + 50 + 1);  // all characters have one byte
  }
  const std::vector<std::string> samples = samples_of(run, {"--samples=2", "--sample_tokens=50"});
  CHECK(samples.size() == 2);
  for (const std::string& sample : samples) CHECK_MESSAGE(sample.size() == 50, sample);
  // Only an id without a token is shown as a number.
  const Outcome inspected = run_orrery({"inspect", run, "--text=First", "--analysis=all"});
  CHECK_MESSAGE(inspected.code == 0, inspected.err);
  const auto shown = [&](int first, int end) {
    int found = 0;
    for (int id = first; id < end; ++id) found += contains(inspected.out, "[" + std::to_string(id) + "]");
    return found;
  };
  CHECK(shown(0, 65) == 0);
  CHECK(shown(65, 200) > 0);
}

TEST_CASE("import: a note reports a tokenizer that is larger than the model's vocabulary") {
  const Folder folder;
  const std::string run = imported(folder, "tokenizer_larger", {"note", "tokenizer", "321", "model", "320"});
  // Tokens 84 258 288 312 300 299 69, then 7 7 245 245 245 245 57 57 57 57.
  CHECK(most_likely(run, "the old gate", 10) ==
        "the old gate''\x96\x96\x96\x96"
        "YYYY\n");
  expect_error(run_orrery({"generate", run, "--prompt=the<|pad|> gate"})).names("tokenizer").value(320).offers(319);
}

TEST_CASE("import, prepare: tokens of added_tokens.json and a vocabulary without the byte alphabet are read") {
  const Folder folder;
  struct Case {
    std::string name, prompt;
    std::vector<int> tokens;  // by transformers
  };
  for (const Case& each :
       {Case{"added_tokens_json", "<|user|>the gate<|bot|>", {320, 83, 257, 299, 298, 68, 321}},
        Case{"no_byte_alphabet", "First Citizen: the old gate", {146, 156, 6, 63, 99, 118, 87, 95, 35}}}) {
    CAPTURE(each.name);
    const std::string run = imported(folder, each.name), count = std::to_string(each.tokens.size());
    CHECK(most_likely(run, each.prompt, 4, {}, {"prompt: " + count + " tokens"}).starts_with(each.prompt));
    const std::string text = folder.write(each.name + ".txt", each.prompt), out = folder / (each.name + "_tokens");
    const Outcome prepared = run_orrery(
        {"prepare", "--input=" + text, "--tokenizer=" + cases + each.name, "--out=" + out, "--validation_fraction=0"});
    REQUIRE_MESSAGE(prepared.code == 0, prepared.err);
    std::string wanted;
    for (const int token : each.tokens) wanted += {static_cast<char>(token % 256), static_cast<char>(token / 256)};
    CHECK(read_file(out + "/train.bin").starts_with(wanted));
  }
  const std::string without = "--checkpoint=" + (folder / "no_byte_alphabet");
  expect_error(run_orrery({"generate", without, "--prompt=\xff"})).names("tokenizer").value("byte 0");
}

TEST_CASE("import: a note reports an end token beyond the model's vocabulary, and generation ignores it") {
  const Folder folder;
  const std::string model = folder / "model", settings = model + "/config.json";
  fs::copy(cases + "tokenizer_larger", model);
  nlohmann::json json = nlohmann::json::parse(read_file(settings));
  json["eos_token_id"] = 320;
  std::ofstream(settings) << json;
  const Outcome outcome = run_orrery({"import", model, "--out=" + (folder / "run")});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  Message(outcome.err).names("note").value("token 320").offers("0 to 319");
  const std::string run = "--checkpoint=" + (folder / "run");
  CHECK(most_likely(run, "the old gate", 10).size() > 12);
  // The tokenizer's own end token, <|endoftext|>, is one of the model's.
  const Outcome ended = run_orrery({"generate", run, "--prompt=the", "--tokens=3", "--stop_at_end=yes"});
  CHECK_MESSAGE(ended.code == 0, ended.err);
  CHECK(ended.out.starts_with("the"));
}

TEST_CASE("export: a model whose vocabulary differs from the tokenizer's is unchanged after a new import") {
  const Folder folder;
  REQUIRE(run_orrery(train_tiny(folder, "larger", {"--vocabulary=200"})).code == 0);
  imported(folder, "tokenizer_larger");
  for (const std::string name : {"larger", "tokenizer_larger"}) {
    CAPTURE(name);
    const std::string theirs = folder / (name + "_theirs"), again = folder / (name + "_again");
    const Outcome exported = run_orrery({"export", folder / name, "--out=" + theirs});
    REQUIRE_MESSAGE(exported.code == 0, exported.err);
    const Outcome back = run_orrery({"import", theirs, "--out=" + again});
    REQUIRE_MESSAGE(back.code == 0, back.err);
    const std::string prompt = name == "larger" ? "ae" : "the old gate";
    CHECK(most_likely("--checkpoint=" + again, prompt, 20, {"--stop_at_end=no"}) ==
          most_likely("--checkpoint=" + (folder / name), prompt, 20, {"--stop_at_end=no"}));
  }
}

TEST_CASE("translate: the vocabulary may be larger than the tokenizer's; text that is not UTF-8 is refused") {
  const Folder folder;
  const auto train = [&](const std::string& vocabulary) {
    return run_orrery({"train", "--model=translation-small", "--layers=1", "--width=16", "--heads=2",
                       "--data=" ORRERY_SOURCE_DIR "/tests/models/translation/bible.tsv", "--source_column=4",
                       "--target_column=3", "--tokenizer=sentence_piece(vocabulary=200)", "--vocabulary=" + vocabulary,
                       "--batch_tokens=200", "--steps=3", "--out=" + (folder / "run")});
  };
  expect_error(train("100")).names("vocabulary").value(100).offers("leave it out");
  const Outcome trained = train("300");
  REQUIRE_MESSAGE(is_complete(trained), trained.err);
  const std::string run = "--checkpoint=" + (folder / "run"), good = folder.write("good.txt", "Und es ward Licht.\n"),
                    latin = cases + "latin1/latin1.txt";
  for (const char* const beam : {"--beam=1", "--beam=4"}) {
    const Outcome found = run_orrery({"translate", run, "--input=" + good, "--max_tokens=30", beam});
    CHECK_MESSAGE(found.code == 0, found.err);
    CHECK(found.out.ends_with('\n'));
  }
  expect_error(run_orrery({"translate", run, "--input=" + latin})).names("translate: " + latin).names("UTF-8").value(5);
  expect_error(run_orrery({"translate", run, "--input=" + good, "--reference=" + latin}))
      .names("translate: " + latin)
      .names("UTF-8")
      .value(5);
}

TEST_CASE("generate: texts begin and end as the imported folder specifies") {
  const Folder folder;
  const std::string llama = imported(folder, "llama_bos"), prompt = "First Citizen:";
  CHECK(most_likely(llama, prompt, 12, {}, {"begins", "token 1", "--begin=no"}) == prompt + " notn?erasith,ien?n?\n");
  const std::string without = prompt + "utill onhstnleolut onl m\n";
  CHECK(most_likely(llama, prompt, 12, {"--begin=no"}) == without);
  const std::string text = folder.write("text.txt", "First Citizen: the old gate and the old road of the citizen\n");
  const auto evaluated = [&](const Words& more) {
    const Outcome outcome = run_orrery(Words{"evaluate", llama, "--validation_data=" + text} + more);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    return outcome.out;
  };
  CHECK(evaluated({}) == evaluated({"--begin=yes"}));
  CHECK(evaluated({}) != evaluated({"--begin=no"}));
  const auto inspected = [&](const Words& more) {
    return run_orrery(Words{"inspect", folder / "llama_bos", "--text=First", "--analysis=logit_lens"} + more).out;
  };
  CHECK(inspected({}) == inspected({"--begin=yes"}));
  CHECK(inspected({}) != inspected({"--begin=no"}));
  const auto rows = [&](const Words& more) {  // the tokens of the report's example; <s> has no text
    return report_section(report_of(folder / "llama_bos", Words{"--text=First", "--analysis=attention"} + more),
                          "blocks.attention")["rows"];
  };
  CHECK(rows({}) == nlohmann::json({"", "F", "irst"}));
  CHECK(rows({"--begin=no"}) == nlohmann::json({"F", "irst"}));

  const std::string gpt2 = imported(folder, "gpt2_end_of_text"), gate = "the old gate";
  const std::string ended = "the old gatend h IS I I Iimimim\n";
  CHECK(most_likely(gpt2, gate, 30, {}, {"ends", "token 0", "'<|endoftext|>'", "--stop_at_end=no"}) == ended);
  CHECK(contains(most_likely(gpt2, gate, 30, {"--stop_at_end=no"}), "imimim<|endoftext|><|endoftext|>"));
  const auto ends = [&](const Words& more) {  // samples of the report that continue after the end of a text
    int found = 0;
    for (const std::string& sample :
         samples_of(folder / "gpt2_end_of_text", Words{"--samples=3", "--analysis=none"} + more))
      found += contains(sample, "<|endoftext|>");
    return found;
  };
  CHECK(ends({}) == 0);
  CHECK(ends({"--stop_at_end=no"}) == 3);
}

TEST_CASE("import: a tokenizer that appends a token to each text is reported") {
  const Folder folder;
  const std::string model = folder / "llama_bos", settings = model + "/tokenizer_config.json";
  fs::copy(cases + "llama_bos", model);
  const auto imported_with = [&](const std::string& adds) {
    nlohmann::json json = nlohmann::json::parse(read_file(cases + "llama_bos/tokenizer_config.json"));
    json["add_eos_token"] = adds == "yes";
    std::ofstream(settings) << json;
    const Outcome outcome = run_orrery({"import", model, "--out=" + (folder / adds)});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return outcome.out + outcome.err;
  };
  CHECK(contains(imported_with("yes"), "add_eos_token"));
  CHECK(!contains(imported_with("no"), "add_eos_token"));
}

TEST_CASE("import: the folder's files set the beginning, the space and the end of a text, also after an export") {
  const Folder folder;
  const std::string prompt = "First Citizen:";
  const auto with = [&](const std::string& name, const std::string& file, const nlohmann::json& members) {
    fs::copy(cases + "llama_bos", folder / name);
    const std::string path = folder / name + "/" + file;
    nlohmann::json json = fs::exists(path) ? nlohmann::json::parse(read_file(path)) : nlohmann::json::object();
    json.update(members);
    std::ofstream(path) << json;
    const std::string run = folder / (name + "_run"), exported = folder / (name + "_exported");
    const Outcome outcome = run_orrery({"import", folder / name, "--out=" + run});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    REQUIRE(run_orrery({"export", run, "--out=" + exported}).code == 0);
    REQUIRE(run_orrery({"import", exported, "--out=" + run + "_again"}).code == 0);
    const std::string written = most_likely("--checkpoint=" + run, prompt, 12);
    CHECK(most_likely("--checkpoint=" + run + "_again", prompt, 12) == written);
    return std::pair(written, outcome.err);
  };
  CHECK(with("begin", "tokenizer_config.json", {{"bos_token", "</s>"}}).first ==
        prompt + "IUSnb his w his w hisorehfid\n");
  CHECK(with("space", "tokenizer_config.json", {{"add_prefix_space", false}})
            .first.starts_with(prompt + " wnhillIUS hisf"));
  CHECK(with("end", "generation_config.json", {{"eos_token_id", 154}}).first == prompt + " not\n");
  CHECK(nlohmann::json::parse(read_file(folder / "end_exported/config.json"))["eos_token_id"] == 2);
  with("unended", "generation_config.json", {{"eos_token_id", nullptr}});
  CHECK(nlohmann::json::parse(read_file(folder / "unended_exported/generation_config.json"))["eos_token_id"].is_null());
  const auto [written, output] = with("other", "generation_config.json", {{"repetition_penalty", 5.0}});
  CHECK(written == prompt + " notn?erasith,ien?n?\n");
  Message(output).names("generation_config.json").value("repetition_penalty=5.0").offers("orrery generate --help");
}

TEST_CASE("prepare: each text begins as the tokenizer's folder specifies") {
  const Folder folder;
  fs::create_directory(folder / "texts");
  for (const char* const file : {"texts/1", "texts/2", "texts/3"}) std::ofstream(folder / file) << "First Citizen:";
  const std::string llama = cases + "llama_bos", out = folder / "out";
  const Outcome prepared = run_orrery(
      {"prepare", "--input=" + (folder / "texts"), "--tokenizer=" + llama, "--out=" + out, "--validation_fraction=0"});
  REQUIRE_MESSAGE(prepared.code == 0, prepared.err);
  std::string wanted;
  for (int text = 0; text < 3; ++text)
    for (const int token : {1, 83, 122, 47, 108, 142, 167, 2}) wanted += {static_cast<char>(token), '\0'};
  CHECK(read_file(out + "/train.bin") == wanted);
  const std::string run = imported(folder, "llama_bos"), data = "--validation_data=" + out;
  const Outcome evaluated = run_orrery({"evaluate", run, data});
  CHECK_MESSAGE(evaluated.code == 0, evaluated.err);
  CHECK(!contains(evaluated.err, "--begin"));
  expect_error(run_orrery({"evaluate", run, data, "--begin=no"})).names("begin=no").value(out).offers("--begin");
}

TEST_CASE("generate: a model trained by orrery adds no begin token and does not stop at an end token by default") {
  const Folder folder;
  REQUIRE(run_orrery(train_tiny(folder, "run", {"--tokenizer=byte_pair(vocabulary=265)"})).code == 0);
  const std::string run = "--checkpoint=" + (folder / "run");
  const Outcome written = run_orrery({"generate", run, "--prompt=ae", "--tokens=20"});
  CHECK(!contains(written.err, "token 264"));
  CHECK(run_orrery({"generate", run, "--prompt=ae", "--tokens=20", "--stop_at_end=no"}).out == written.out);
  CHECK(run_orrery({"generate", run, "--prompt=ae", "--tokens=20", "--stop_at_end=yes"}).code == 0);
  expect_error(run_orrery({"generate", run, "--prompt=ae", "--begin=yes"})).names("begin=yes").offers("--begin");
}

TEST_CASE("prepare, train: SentencePiece and character tokenizers refuse bytes that are not UTF-8") {
  const Folder folder;
  const std::string latin = cases + "latin1/latin1.txt", out = "--out=" + (folder / "out");
  for (const char* const tokenizer : {"--tokenizer=sentence_piece(vocabulary=60)", "--tokenizer=character"}) {
    expect_error(run_orrery({"prepare", "--input=" + latin, tokenizer, out})).names("UTF-8").value(5);
    expect_error(run_orrery(Words{"train", "--data=" + latin, tokenizer, out} + tiny)).names("UTF-8").value(5);
  }
  const std::string good = folder.write("good.txt", "a\nb\n");
  expect_error(run_orrery({"train", "--model=translation-small", "--data=" + latin, "--translations=" + good, out}))
      .names("pairs: " + latin)
      .names("UTF-8")
      .value(5);
}

TEST_CASE("generate, inspect, report: a text that is not UTF-8 is refused by tokenizers that read characters") {
  const std::string text = "ab\xff";
  for (const std::string tokenizer : {"sentence_piece(vocabulary=30)", "character", "byte"}) {
    CAPTURE(tokenizer);
    const Folder here;
    REQUIRE(is_complete(run_orrery(train_tiny(here, "run", {"--tokenizer=" + tokenizer}))));
    for (const Words& words : {Words{"generate", here / "run", "--tokens=3", "--prompt=" + text},
                               Words{"inspect", here / "run", "--analysis=attention", "--text=" + text},
                               Words{"report", here / "run", "--analysis=attention", "--text=" + text}}) {
      const Outcome outcome = run_orrery(words);
      if (tokenizer == "byte")
        CHECK_MESSAGE(outcome.code == 0, outcome.err);
      else
        expect_error(outcome).names("UTF-8").value(2).offers("tokenizer=byte");
    }
  }
}

TEST_CASE("prepare: words of any length are valid training data of a tokenizer") {
  const Folder folder;
  for (const int letters : {32'000, 33'000, 40'000, 60'000, 70'000}) {
    const std::string text = folder / "text", out = folder / std::to_string(letters);
    REQUIRE(
        run_shell("python3 '" + cases + "long_word/make.py' " + std::to_string(letters) + " > '" + text + "'").code ==
        0);
    const Outcome made =
        run_orrery({"prepare", "--input=" + text, "--tokenizer=sentence_piece(vocabulary=80)", "--out=" + out});
    CHECK_MESSAGE(made.code == 0, made.err);
    Message(made.out).names("tokens").names("validation").value(80);
  }
}

TEST_CASE("train: empty files are documents without a target, and steps of these alone do not end training") {
  const Folder folder;
  const std::string texts = folder / "texts", run = folder / "run";
  REQUIRE(run_shell("python3 '" + cases + "empty_files/make.py' '" + texts + "' 400").code == 0);
  for (const char* const batch : {"1", "4"}) {
    fs::remove_all(run);
    const Outcome trained = run_orrery(
        {"train", "--model=gpt", "--layers=1", "--heads=2", "--width=16", "--context=16", "--steps=300",
         std::string("--batch_size=") + batch, "--documents=yes", "--tokenizer=byte_pair(vocabulary=300)",
         "--data=" + texts, "--validation_tokens=100", "--evaluate_every=0", "--metrics=none", "--out=" + run});
    CHECK_MESSAGE(trained.code == 0, trained.err);
    size_t steps = 0, without = 0;
    for (const auto& row : orrery::testing::logged_rows(run)) {
      steps += row.contains("gradient_norm");
      without += row.contains("gradient_norm") && !row.contains("loss");
    }
    CHECK(steps == 300);
    CHECK(without > 0);
  }
}

TEST_CASE("export: each tokenizer is written in the file formats of its programs and can be imported again") {
  const Folder folder;
  std::string words;
  for (int i = 0; i < 300; ++i) words += "to be or not to be and\n";
  const std::string text = folder.write("text.txt", words);
  for (const std::string tokenizer :
       {"sentence_piece(vocabulary=20)", "byte", "character", "byte_pair(vocabulary=260)"}) {
    CAPTURE(tokenizer);
    const Folder here;
    REQUIRE(run_orrery(Words{"train", "--data=" + text, "--out=" + (here / "run"), "--tokenizer=" + tokenizer} + tiny +
                       Words{"--steps=30"})  // for a loss below that of guessing
                .code == 0);
    REQUIRE(run_orrery({"export", here / "run", "--out=" + (here / "theirs")}).code == 0);
    const bool is_sentence_piece = tokenizer.starts_with("sentence");
    CHECK(run_shell("test -e '" + (here / "theirs") + "/tokenizer.json'").code == 0);
    CHECK((run_shell("test -e '" + (here / "theirs") + "/tokenizer.model'").code == 0) == is_sentence_piece);
    const Outcome again = run_orrery({"import", here / "theirs", "--out=" + (here / "again")});
    CHECK_MESSAGE(again.code == 0, again.err);
    const auto generated = [&](const std::string& run) {
      return run_orrery(
                 {"generate", "--checkpoint=" + (here / run), "--prompt=to be", "--tokens=30", "--stop_at_end=no"})
          .out;
    };
    CHECK(generated("again") == generated("run"));
  }
}
