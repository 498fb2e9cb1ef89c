// orrery inspect on texts, images and pairs: its output, and errors.
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/examples/inspect.h"

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using orrery::testing::expect_error;
using orrery::testing::finds;
using orrery::testing::match_in;
using orrery::testing::Message;

namespace {

const std::string scraps = ORRERY_SOURCE_DIR "/tests/models";

}  // namespace

TEST_CASE("inspect: one head of a text is shown as a map with its largest weights") {
  const Folder folder;
  const std::string run = trained_run(folder, "run", {"--layers=2"});
  const Outcome map = inspect({run, "--text=abeabe", "--analysis=attention", "--layer=1", "--head=0", "--top=3"});
  CHECK(contains(map.out, "Attention: blocks.1.attention, head 0\n"));
  Message(map.out).names("weights").value("add up to 1.");
  CHECK(contains(map.out, "     abeabe\n  a |█·····|\n"));
  CHECK(contains(map.out, "; ·: not visible\n"));
  CHECK(finds(map.out, "query  key  weight\n +0 a +0 a +1\\.0000\n"));
  const Outcome all = inspect({run, "--text=abeabe", "--analysis=attention"});
  Message(all.out).names("4 maps").value("6 x 6").offers("--html=FILE.html");
  const std::string file = folder.write("example.txt", "abeabe");
  CHECK(inspect({run, "--text=FILE:" + file, "--analysis=attention", "--layer=1", "--head=0", "--top=3"}).out ==
        map.out);
}

TEST_CASE("inspect: a text beyond the context is cut to its last tokens, and a note reports this") {
  const Folder folder;
  const std::string run = trained_run(folder, "run");
  const Outcome cut = inspect({run, "--text=kedabeabedka", "--analysis=ablation"});
  Message(cut.err).names("note").value("12 tokens").names("context").value(8).names("last");
  CHECK(cut.out == inspect({run, "--text=beabedka", "--analysis=ablation"}).out);
  CHECK(!contains(inspect({run, "--text=beabedka"}).err, "note: "));
}

TEST_CASE("inspect: with --documents=yes, the loss of a text equals the validation loss of the run") {
  const Folder folder;
  const std::string held_out = "the old gate<|endoftext|>a cat<|endoftext|>the grey<|endoftext|>", run = folder / "run";
  std::string text;
  for (int i = 0; i < 64; ++i) text += held_out;
  const Outcome learned =
      run_orrery(Words{"train", "--data=" + folder.write("d", text), "--validation_data=" + folder.write("v", held_out),
                       "--documents=yes", "--tokenizer=" ORRERY_SOURCE_DIR "/tests/cases/gpt2_end_of_text",
                       "--learning_rate=0.05", "--metrics=none", "--out=" + run} +
                 tiny + Words{"--context=64", "--steps=40"});
  REQUIRE_MESSAGE(learned.code == 0, learned.err);
  const auto loss = match_in(last_line(learned.out), "validation loss (\\d+\\.\\d{4})");
  REQUIRE_MESSAGE(loss.size() == 2, learned.out);
  for (const Words& example : {Words{}, Words{"--text=" + held_out}})
    Message(inspect(Words{run, "--analysis=ablation"} + example).out).names("loss").value(loss[1]);
}

TEST_CASE("inspect: plots on a terminal show the signs of their values") {
  const Folder folder;
  const std::string run = trained_run(folder, "run");
  const Outcome promoted = inspect({run, "--text=abeabe", "--analysis=neurons", "--slot=3"});
  CHECK(inspect({run, "--text=abeabe", "--analysis=neurons", "--neuron=3"}).out == promoted.out);
  const Outcome help = run_orrery({"help", "inspect", "neuron"});
  Message(help.out).names("--slot").names("hidden unit").names("also:").names("neuron");
  CHECK(finds(promoted.out, "  -0\\.\\d+ +(█)+\\|\n"));  // negative: left of the line
  CHECK(finds(promoted.out, "   0\\.\\d+ +\\|(█)+\n"));  // positive: right of it
  CHECK(!finds(promoted.out, "  -0\\.\\d+ +(█)*\\|█"));
  const Outcome lens = inspect({run, "--text=abeabe", "--analysis=logit_lens"});
  CHECK(finds(lens.out, "scale: ln p of the target 0 to -\\d\\.\\d+ \\(square root\\); "));
  Message(lens.out).names(". - = #").value("negative");
}

TEST_CASE("inspect: models of images and of translations are analyzed") {
  const Folder folder;
  const std::string vit = folder / "vit", pairs = folder / "pairs";
  const Outcome images = run_orrery({"train", "--model=vit-fashion", "--layers=1", "--width=16", "--heads=2",
                                     "--batch_size=4", "--steps=2", "--evaluate_every=0",
                                     "--data=" + scraps + "/images/shapes", "--image_size=8", "--out=" + vit});
  REQUIRE_MESSAGE(images.code == 0, images.err);
  const std::string image = scraps + "/images/shapes/val/rings/0.png";
  const Outcome patches = inspect({vit, "--image=" + image, "--label=1", "--analysis=attention,heads"});
  Message(patches.out).names("2 maps").value("4 x 4");
  Message(patches.out).names("pixels");
  refusal({vit, "--text=abe"}).names("inspect").value("image").offers("--image=FILE.png");
  refusal({vit, "--image=" + image, "--analysis=neurons", "--corpus=x.txt"})
      .names("--corpus")
      .names("language model")
      .offers("leave it out");
  refusal({vit, "--image=" + image, "--label=9"}).names("inspect").names("label").value(9).offers("0 to 1");
  const Outcome translation = run_orrery(
      {"train", "--model=translation-small", "--layers=1", "--width=16", "--heads=2", "--steps=2", "--evaluate_every=0",
       "--data=" + scraps + "/translation/bible.tsv", "--source_column=4", "--target_column=3",
       "--tokenizer=sentence_piece(vocabulary=150)", "--context=256", "--out=" + pairs});
  REQUIRE_MESSAGE(is_complete(translation), translation.err);
  const Outcome given =
      inspect({pairs, "--source=Im Anfang", "--target=In the beginning", "--analysis=attention,heads"});
  for (const char* kind : {"encoder.attention", "decoder.attention", "decoder.cross_attention"})
    CHECK_MESSAGE(contains(given.out, std::string("Attention: ") + kind), kind);
  CHECK(contains(inspect({pairs, "--source=Im Anfang", "--analysis=attention"}).out, "decoder.cross_attention"));
}

TEST_CASE("inspect, report: a model of an algorithmic problem reads numbers, also without feed-forwards") {
  const Folder folder;
  const std::string run = folder / "problem";
  const Outcome outcome =
      run_orrery({"train", "--task=algorithmic", "--problem=copy(length=8)", "--layers=1", "--heads=2", "--width=16",
                  "--context=16", "--batch_size=2", "--steps=2", "--feed_forward=none", "--out=" + run});
  REQUIRE_MESSAGE(is_complete(outcome), outcome.err);
  CHECK(contains(inspect({run, "--text=1 2 3", "--analysis=attention", "--head=0", "--top=1"}).out,
                 "Attention: blocks.0.attention, head 0"));
  const Outcome hooks = inspect({run, "--text=1 2 3", "--hooks=blocks.0.hook_resid_post,blocks.0.attention.weights"});
  CHECK(contains(hooks.out, "blocks.0.output"));
  CHECK(contains(hooks.out, "(1, 2, 3, 3)"));
  refusal({run, "--text=one"}).value("'one'").names("token").offers("numbers").offers("spaces");
  refusal({run, "--text=99"}).names("token").value(99).offers(8);
  const std::string page = folder / "page.html";
  const Outcome report = run_orrery({"report", run, "--out=" + page});
  REQUIRE_MESSAGE(report.code == 0, report.err);
  CHECK(contains(read_file(page), "\"title\":\"Metrics of each head\""));
  CHECK(!contains(read_file(page), "Runs that could not be analyzed"));
}

TEST_CASE("inspect: examples and options that do not fit the model are refused") {
  const Folder folder;
  const std::string run = trained_run(folder, "run");
  refusal({}).names("inspect").value(0).names("runs").offers("orrery inspect");
  refusal({run, "--text="}).value("text").offers("--text").offers("empty");
  refusal({run, "--text=abe", "--analysis=heds"}).names("analysis").value("heds").offers("'heads'");
  refusal({run, "--text=abe", "--analysis=attention", "--layer=5"})
      .names("layer")
      .value(5)
      .names("attention")
      .offers(0);
  refusal({run, "--txt=abc"}).value("txt").offers("'text'");
  for (const Words& unread : {Words{"--image", "x.png"}, {"--label", "0"}, {"--source", "ab"}, {"--target", "ab"}})
    refusal({run, "--text=abe", unread[0] + "=" + unread[1]}).names(unread[0]).value("--text").offers("leave it out");
  refusal({run, "--text=abe", "--patch_from=abd"})
      .names("inspect: --patch_from")
      .names("ablation")
      .offers("--analysis=ablation");
  refusal({run, "--text=abe", "--corpus=x.txt", "--analysis=heads"}).names("--corpus").offers("--analysis=neurons");
  refusal({folder / "nothing", "--text=abe"}).names("folder").value(folder / "nothing").offers("orrery train");
  fs::create_directory(folder / "empty");
  refusal({folder / "empty", "--text=abe"}).names(folder / "empty").names("checkpoint").offers("run");
  CHECK(contains(run_orrery({"inspect", "--help"}).out, "heads: metrics of each head"));
}

TEST_CASE("report: analyses are included; their default example is held out or, without data, generated") {
  const Folder folder;
  const std::string run = trained_run(folder, "run"), page = folder / "page.html";
  const auto made = [&](const Words& more) {
    const Outcome outcome = run_orrery(Words{"report", run, "--out=" + page} + more);
    INFO(outcome.err);
    CHECK(outcome.code == 0);
    return read_file(page);
  };
  CHECK(contains(made({}), "\"title\":\"Metrics of each head\""));
  CHECK(contains(made({}), "Example: held_out:0 of the run's held-out data."));
  fs::rename(folder / "text.txt", folder / "moved.txt");
  CHECK(contains(made({}), "Example: a text that the model generates."));
  expect_error(run_orrery({"report", run, "--example=held_out:0"})).names("text.txt").names("--data").offers("--text");
  fs::rename(folder / "moved.txt", folder / "text.txt");
  CHECK(!contains(made({"--analysis=none"}), "\"title\":\"Metrics of each head\""));
  CHECK(contains(made({"--text=abeabe", "--analysis=attention"}), "\"rows\":[\"a\",\"b\",\"e\",\"a\",\"b\",\"e\"]"));
  const std::string cut = made({"--text=abedkabedkabe", "--analysis=attention"});
  CHECK(contains(cut, "Note: the text has 13 tokens, but the context is 8; the example is its last tokens."));
  CHECK(contains(cut, "\"rows\":[\"a\",\"b\",\"e\",\"d\",\"k\",\"a\",\"b\",\"e\"]"));
  expect_error(run_orrery({"report", run, "--source=abe"})).names("report").offers("--text").offers("--source");
  expect_error(run_orrery({"report", run, "--label=1"})).names("report: --label").offers("--image=...");
  expect_error(run_orrery({"report", run, "--target=a"})).names("report: --target").offers("--source=...");
  const Outcome unknown = run_orrery({"report", run, "--analysis=heds", "--out=" + (folder / "none.html")});
  expect_error(unknown).names("analysis").value("heds").offers("'heads'");
  CHECK(!fs::exists(folder / "none.html"));
}

TEST_CASE("inspect: attribution, head patching, gradients and attention scores work from the command line") {
  const Folder folder;
  const std::string run = trained_run(folder, "run", {"--layers=2"}), page = folder / "page.html";
  const Words answers = {"--answer=a", "--against=b"}, text = {run, "--text=abeabe"};
  const Outcome logits = inspect(text + answers + Words{"--analysis=logit_attribution", "--html=" + page});
  Message(logits.out).names("component").value("'a'").value("'b'").names("difference").names("all 9");
  Message(logits.out).names("blocks.1.attention head 0").names("Contribution of each head");
  CHECK(contains(read_file(page), "\"group\":\"Logit attribution\""));
  const Outcome many = inspect({run, "--examples=3", "--analysis=logit_attribution", "--answer=a"});
  Message(many.out).names("difference over").names("embedding").names("blocks.0.attention.1");
  const Outcome heads = inspect(text + answers + Words{"--patch_from=eabeab", "--analysis=head_patching"});
  Message(heads.out).names("Patching each head's output").names("the logit of 'a' minus that of 'b'");
  const Outcome gradients = inspect(text + Words{"--analysis=gradient_times_input", "--position=3"});
  Message(gradients.out).names("Gradient times embedding").names("position 3").names("ln p of 'b'");
  const Outcome score = inspect(text + Words{"--analysis=attention_score", "--layer=1", "--head=0", "--position=4",
                                             "--key=2"});
  Message(score.out).names("blocks.1.attention head 0, query 4 'b', key 2 'e'").names("<q, k>").names("weight");
  for (const Words& unused : {Words{"--answer=a"}, {"--against=a"}})
    refusal(text + unused).names(unused[0].substr(0, unused[0].find('='))).offers("--analysis=logit_attribution");
  refusal(text + Words{"--key=1"}).names("--key").offers("--analysis=attention_score");
  refusal(text + Words{"--analysis=head_patching"}).names("head_patching").offers("--patch_from");
  refusal(text + Words{"--analysis=logit_attribution", "--answer=abe"})
      .names("--answer")
      .value("abe")
      .offers("predictions");
}

TEST_CASE("inspect: logit lens, ablation, neurons and normalization curves work from the command line") {
  const Folder folder;
  const std::string run = trained_run(folder, "run", {"--layers=2", "--normalization=dyt"}),
                    page = folder / "page.html";
  const Outcome depth = inspect({run, "--text=abeabe", "--analysis=logit_lens", "--position=2"});
  CHECK(contains(depth.out, "Logit lens: Top prediction after each sublayer"));
  CHECK(contains(depth.out, "Logit lens: Predictions at position 2, 'e'"));
  refusal({run, "--text=abeabe", "--analysis=logit_lens", "--position=6"}).names("position").value(6).offers(5);
  const Outcome causes =
      inspect({run, "--text=abeabe", "--patch_from=abedbe", "--analysis=ablation", "--top=4", "--html=" + page});
  CHECK(contains(causes.out, "blocks.1.attention"));
  CHECK(contains(read_file(page), "\"group\":\"Ablation\""));
  refusal({run, "--text=abeabe", "--patch_from=ab", "--analysis=ablation"}).value(6).value(2).offers("tokens");
  const std::string corpus = folder.write("corpus.txt", tiny_text());
  const Outcome memories =
      inspect({run, "--text=abeabe", "--corpus=" + corpus, "--analysis=neurons", "--layer=0", "--slot=3"});
  CHECK(contains(memories.out, "Neurons: "));
  // Documents are read as in training: a line break ends each.
  const auto found_in = [&](const std::string& file, const std::string& content) {
    return inspect({run, "--text=abeabe", "--corpus=" + folder.write(file, content), "--analysis=neurons", "--layer=0"})
        .out;
  };
  const std::string plain = found_in("lines.txt", "abe\nbea\n");
  CHECK(found_in("lines.jsonl", "{\"text\": \"abe\"}\n{\"id\": 1, \"text\": \"bea\"}\n") == plain);
  CHECK(found_in("lines.csv", "id,text\n1,abe\n2,bea\n") == plain);
  // The search of a file longer than 16 MiB covers its beginning, up to the end of a line.
  const std::string longer = folder / "longer.txt";  // lines of 7 bytes
  REQUIRE(run_shell("yes abeabe | head -c 20000000 > '" + longer + "'").code == 0);
  REQUIRE(run_shell("gzip -1 < '" + longer + "' > '" + longer + ".gz'").code == 0);
  for (const std::string& file : {longer, longer + ".gz"}) {
    const Outcome beginning =
        inspect({run, "--text=abeabe", "--corpus=" + file, "--analysis=neurons", "--layer=0", "--slot=3"});
    CHECK(contains(beginning.out, "Neurons: "));
    Message(beginning.err).names("note").names(file).value("16,777,215").value("16,777,216");
  }
  const std::string tokens = folder / "tokens";
  REQUIRE(run_orrery({"prepare", "--input=" + corpus, "--out=" + tokens, "--tokenizer=byte"}).code == 0);
  for (const std::string& file : {tokens + "/train.bin", tokens + "/val.bin"}) {
    refusal({run, "--text=abeabe", "--corpus=" + file, "--analysis=neurons"})
        .names(file)
        .value("tokens")
        .offers("text");
    refusal({run, "--text=FILE:" + file, "--analysis=heads"}).names(file).value("tokens").offers("text");
  }
  refusal({run, "--text=abeabe", "--analysis=neurons", "--slot=999"}).names("slot").value(999).names("feed_forward");
  CHECK(contains(inspect({run, "--text=abeabe", "--analysis=normalization_curves"}).out, "blocks.0.attention_norm"));
  CHECK(contains(inspect({run, "--text=abeabe", "--analysis=all"}).out, "Heads: "));
}

TEST_CASE("inspect: former names of analyses and hooks give the same output and are not listed") {
  const Folder folder;
  const std::string run = trained_run(folder, "run", {"--layers=1", "--normalization=dyt"}),
                    corpus = folder / "text.txt";
  const auto shown = [&](const Words& words) { return inspect(Words{run, "--text=abeabe"} + words).out; };
  CHECK(shown({"--analysis=causes,depth,curves,memories"}) ==
        shown({"--analysis=ablation,logit_lens,normalization_curves,neurons"}));
  CHECK(shown({"--analysis=causes", "--patch_from=abedbe"}) == shown({"--analysis=ablation", "--patch_from=abedbe"}));
  CHECK(shown({"--analysis=memories", "--corpus=" + corpus}) == shown({"--analysis=neurons", "--corpus=" + corpus}));
  CHECK(shown({"--hooks=*.read,*.hidden_before"}) == shown({"--hooks=*.head_output,*.pre_activation"}));
  const std::string help = run_orrery({"inspect", "--help"}).out, listed = run_orrery({"list", "analyses"}).out;
  for (const char* former : {"causes", "memories", "  depth:", "  curves:"}) {
    CHECK(!contains(help, former));
    CHECK(!contains(listed, former));
  }
  CHECK(run_orrery({"list", "causes"}).out == run_orrery({"list", "ablation"}).out);
  CHECK(run_orrery({"list", "sm-ln-g"}).out == run_orrery({"list", "pre-ln-gelu"}).out);
  CHECK(run_orrery({"list", "largest_score"}).out == run_orrery({"list", "max_score"}).out);
  // A file of metrics that an older program wrote can be replaced.
  folder.write("seen.csv", "figure,value\ncauses/loss,2.5\n");
  inspect({run, "--text=abeabe", "--analysis=ablation", "--out=" + (folder / "seen.csv")});
  CHECK(contains(read_file(folder / "seen.csv"), "ablation/loss,"));
}
