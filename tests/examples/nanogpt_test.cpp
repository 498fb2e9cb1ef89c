// nanoGPT's names of settings: each command that has a counterpart reads it, and the others are refused in a sentence.
// The names are those of train.py, sample.py and bench.py of https://github.com/karpathy/nanoGPT, commit 3adf61e.
#include <doctest/doctest.h>

#include "tests/examples/program.h"
#include "tests/support/message.h"

using Words = std::vector<std::string>;
using orrery::testing::expect_error;

namespace {

std::string trained(const Folder& folder, const Words& more = {}) {
  const Outcome outcome = run_orrery(
      Words{"train", "--data=" + folder.write("text.txt", tiny_text()), "--out_dir=" + (folder / "run")} + tiny + more);
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  return folder / "run";
}

// Whether the sentence says what to do, and is not that of any unknown key.
bool is_answered(const std::string& error) {
  return contains(error, "leave it out") || contains(error, "schedule=constant") ||
         contains(error, "did you mean 'data'") || contains(error, "orrery import");
}

}  // namespace

TEST_CASE("nanoGPT: generate reads the names of sample.py") {
  const Folder folder;
  const std::string run = trained(folder);
  const Outcome theirs =
      run_orrery({"generate", "--out_dir=" + run, "--start=abe", "--num_samples=2", "--max_new_tokens=5",
                  "--temperature=0.8", "--top_k=20", "--seed=7", "--device=cpu"});
  REQUIRE_MESSAGE(theirs.code == 0, theirs.err);
  const Outcome ours = run_orrery({"generate", "--checkpoint=" + run, "--prompt=abe", "--samples=2", "--tokens=5",
                                   "--temperature=0.8", "--top_k=20", "--seed=7"});
  CHECK(theirs.out == ours.out);
  for (const char* key : {"init_from", "dtype", "compile"}) {
    CAPTURE(key);
    const Outcome refused = run_orrery({"generate", "--checkpoint=" + run, std::string("--") + key + "=True"});
    expect_error(refused).names(key);
    CHECK(is_answered(refused.err));
  }
  expect_error(run_orrery({"generate", "--checkpoint=" + run, "--init_from=gpt2"})).names("init_from").offers("import");
  CHECK(run_orrery({"evaluate", "--out_dir=" + run}).out == run_orrery({"evaluate", "--checkpoint=" + run}).out);
}

TEST_CASE("nanoGPT: train and sweep read the names of train.py") {
  const Folder folder;
  const Words read = {"--n_layer=1",         "--n_head=2",        "--n_embd=16",
                      "--block_size=8",      "--batch_size=2",    "--max_iters=4",
                      "--dropout=0.0",       "--bias=False",      "--learning_rate=1e-3",
                      "--weight_decay=1e-1", "--beta1=0.9",       "--beta2=0.99",
                      "--grad_clip=1.0",     "--warmup_iters=1",  "--lr_decay_iters=4",
                      "--min_lr=1e-4",       "--eval_interval=2", "--gradient_accumulation_steps=1",
                      "--device=cpu",        "--seed=1337"};
  const std::string data = "--data=" + folder.write("text.txt", tiny_text());
  const Outcome theirs = run_orrery(Words{"train", data, "--out_dir=" + (folder / "run")} + read);
  CHECK_MESSAGE(theirs.code == 0, theirs.err);
  const Outcome swept = run_orrery(
      Words{"sweep", data, "--out=" + (folder / "swept"), "--runs=" + (folder / "pool"), "--n_embd={8,16}"} + read);
  CHECK_MESSAGE(swept.code == 0, swept.err);
  CHECK(contains(swept.out, "n_embd=8"));
  for (const char* key : {"eval_iters", "log_interval", "eval_only", "always_save_checkpoint", "wandb_log",
                          "wandb_project", "wandb_run_name", "dataset", "decay_lr", "backend", "compile", "real_data"})
    for (const char* command : {"train", "sweep"}) {
      CAPTURE(key);
      const Outcome refused = run_orrery({command, data, "--out=" + (folder / "none"), std::string("--") + key + "=1"});
      expect_error(refused).names(key);
      CHECK(is_answered(refused.err));
    }
  expect_error(run_orrery({"train", data, "--init_from=scratch"})).names("init_from").value("scratch");
  expect_error(run_orrery({"train", data, "--init_from=resume"})).value("resume").offers("--resume=RUN");
  expect_error(run_orrery({"train", data, "--init_from=gpt2-xl"})).value("gpt2-xl").offers("import");
}
