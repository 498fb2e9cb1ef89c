// Rules by path: weight decay and learning rates of parameters; runs with init_from.
#include "models/training/parameter_rules.h"

#include <doctest/doctest.h>

#include "models/training/run_folder.h"
#include "tests/support/message.h"
#include "tests/support/small_run.h"

using namespace orrery;
using namespace orrery::models;
using namespace orrery::testing;

namespace {

std::map<std::string, nn::Parameter*> by_path(nn::Module& model) {
  std::map<std::string, nn::Parameter*> all;
  for (const nn::NamedParameter& p : nn::parameters_of(model)) all[p.path] = p.parameter;
  return all;
}

}  // namespace

TEST_CASE("parameter rules: the last matching pattern counts; other parameters are unchanged") {
  const Run run;
  TrainSettings s = run.settings({{"vocabulary", "60"},
                                  {"lr_scales", "blocks.*=0.5, *norm.*=2,norm.weight=0"},
                                  {"weight_decay_rules", "*norm.weight=yes, token_embedding.weight=no"}});
  const auto model = make_model(s);
  apply_parameter_rules(s, *model);
  auto all = by_path(*model);
  CHECK(all.at("norm.weight")->lr_scale == 0);
  CHECK(all.at("norm.bias")->lr_scale == 2);
  CHECK(all.at("blocks.0.attention_norm.bias")->lr_scale == 2);
  CHECK(all.at("blocks.0.feed_forward.input.weight")->lr_scale == 0.5);
  CHECK(all.at("position_embedding.weight")->lr_scale == 1);
  CHECK(all.at("norm.weight")->decay);
  CHECK(!all.at("norm.bias")->decay);
  CHECK(!all.at("token_embedding.weight")->decay);
  CHECK(all.at("position_embedding.weight")->decay);
}

TEST_CASE("parameter rules: a factor of 0 freezes a parameter, a factor of 1 is the default, and decay acts") {
  const Run run;
  const auto weights = [&](const Assignments& more) {
    Trainer trainer(run.settings(more));
    trainer.run();
    std::filesystem::remove_all(run.out);
    std::map<std::string, std::vector<double>> all;
    for (const auto& [path, parameter] : by_path(trainer.model())) all[path] = parameter->value.to_vector();
    return all;
  };
  const auto plain = weights({}), held = weights({{"lr_scales", "norm.weight=0"}}),
             decayed = weights({{"weight_decay_rules", "norm.weight=yes"}});
  CHECK(weights({{"lr_scales", "*=1"}}) == plain);
  CHECK(held.at("norm.weight") == std::vector<double>(8, 1.0));
  CHECK(plain.at("norm.weight") != held.at("norm.weight"));
  CHECK(decayed.at("norm.weight") != plain.at("norm.weight"));
}

TEST_CASE("parameter rules: a malformed rule has an error message") {
  const Run run;
  const auto refused = [&](const std::string& key, const std::string& value, const std::string& why) {
    CHECK(error_of([&] { run.train({{key, value}}); }) == "train: " + key + ": " + why);
  };
  refused("lr_scales", "norm", "'norm' is not of the form PATTERN=VALUE");
  refused("lr_scales", "a, norm.*=1", "'a' is not of the form PATTERN=VALUE");
  Message(error_of([&] {
    run.train({{"lr_scales", "norm.*=-1"}});
  })).names("lr_scales").value("-1");
  refused("weight_decay_rules", "gains=no",
          "no parameter path matches 'gains'; the first path is token_embedding.weight, the last norm.bias");
  CHECK(contains(error_of([&] {
                   run.train({{"weight_decay_rules", "norm.*=perhaps"}});
                 }),
                 "train: weight_decay_rules"));
  CHECK(contains(error_of([&] {
                   run.train({{"optimizer", "adagrad"}, {"weight_decay_rules", "norm.*=yes"}});
                 }),
                 " has no weight_decay; leave weight_decay_rules out, or use an optimizer that has it, such as adamw"));
}

TEST_CASE("init_from: a run starts with another run's weights and tokenizer, at step 0") {
  const Run first;
  first.train();
  Trainer trained(first.settings({{"resume", "yes"}}));
  const Run second;
  Trainer begun(second.settings({{"init_from", first.out}, {"tokenizer", "byte"}, {"seed", "5"}}));
  CHECK(begun.steps_done() == 0);
  CHECK(begun.task().tokenizer() == trained.task().tokenizer());
  for (const auto& [path, parameter] : by_path(trained.model()))
    CHECK(by_path(begun.model()).at(path)->value.to_vector() == parameter->value.to_vector());
  begun.run();
  std::filesystem::remove_all(first.out);  // resuming does not need it
  expect_error([&] {
    second.resume({{"init_from", second.out}, {"tokenizer", "byte"}, {"seed", "5"}});
  })
      .names("init_from")
      .value(first.out);
  CHECK(second.resume({{"init_from", first.out}, {"tokenizer", "byte"}, {"seed", "5"}}).steps_done == 8);
  const Run third;
  CHECK(error_of([&] {
          third.train({{"init_from", first.out}});
        }) == "checkpoint: there is no folder " + first.out + "; orrery train --out=DIR makes one");
  CHECK(contains(error_of([&] { third.train({{"init_from", second.out}, {"width", "16"}}); }), "has shape"));
}

TEST_CASE("overfit_one_batch: the same batch at every step") {
  const Run run;
  const auto losses = [&](const std::string& overfit) {
    std::vector<double> all;
    TrainingEvents events;
    events.step = [&](const StepReport& report) { all.push_back(report.loss); };
    run.train({{"overfit_one_batch", overfit}, {"steps", "150"}, {"checkpoint_every", "0"}, {"learning_rate", "0.03"}},
              events);
    std::filesystem::remove_all(run.out);
    return all;
  };
  const std::vector<double> same = losses("yes"), others = losses("no");
  CHECK(same[0] == others[0]);
  CHECK(same.back() < 0.1);
  CHECK(others.back() > 0.5);
}
