// nanoGPT's names of settings: commands with a counterpart accept them; others refuse them. Names:
// train.py, sample.py and bench.py of https://github.com/karpathy/nanoGPT, commit 3adf61e.
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

struct Key {
  std::string name, way_out;
};

}  // namespace

TEST_CASE("nanoGPT: generate accepts the setting names of sample.py") {
  const Folder folder;
  const std::string run = trained(folder);
  const Outcome theirs =
      run_orrery({"generate", "--out_dir=" + run, "--start=abe", "--num_samples=2", "--max_new_tokens=5",
                  "--temperature=0.8", "--top_k=20", "--seed=7", "--device=cpu"});
  REQUIRE_MESSAGE(theirs.code == 0, theirs.err);
  const Outcome ours = run_orrery({"generate", "--checkpoint=" + run, "--prompt=abe", "--samples=2", "--tokens=5",
                                   "--temperature=0.8", "--top_k=20", "--seed=7"});
  CHECK(theirs.out == ours.out);
  for (const auto& [key, way_out] : {Key{"init_from", "orrery import"}, {"dtype", "leave"}, {"compile", "leave"}})
    expect_error(run_orrery({"generate", "--checkpoint=" + run, "--" + key + "=True"})).names(key).offers(way_out);
  expect_error(run_orrery({"generate", "--checkpoint=" + run, "--init_from=gpt2"})).names("init_from").offers("import");
  CHECK(run_orrery({"evaluate", "--out_dir=" + run}).out == run_orrery({"evaluate", "--checkpoint=" + run}).out);
}

TEST_CASE("nanoGPT: train and sweep accept the setting names of train.py") {
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
  for (const auto& [key, way_out] : {Key{"eval_iters", "leave"},
                                     {"log_interval", "leave"},
                                     {"eval_only", "orrery evaluate"},
                                     {"always_save_checkpoint", "keep_best"},
                                     {"wandb_log", "orrery metrics"},
                                     {"wandb_project", "orrery metrics"},
                                     {"wandb_run_name", "orrery metrics"},
                                     {"dataset", "data"},
                                     {"decay_lr", "schedule=constant"},
                                     {"backend", "--threads"},
                                     {"compile", "leave"},
                                     {"real_data", "data"}})
    for (const std::string command : {"train", "sweep"})
      expect_error(run_orrery({command, data, "--out=" + (folder / "none"), "--" + key + "=1"}))
          .names(key)
          .offers(way_out);
  expect_error(run_orrery({"train", data, "--out=" + (folder / "none"), "--dtype=float16"}))
      .names("dtype")
      .value("float16")
      .offers("bf16");
  expect_error(run_orrery({"train", data, "--init_from=scratch"})).names("init_from").value("scratch");
  expect_error(run_orrery({"train", data, "--init_from=resume"})).value("resume").offers("--resume=RUN");
  expect_error(run_orrery({"train", data, "--init_from=gpt2-xl"})).value("gpt2-xl").offers("import");
}
