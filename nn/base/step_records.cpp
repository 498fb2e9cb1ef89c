#include "nn/base/step_records.h"

namespace orrery::nn {
namespace {

struct CollectRecords final : Visitor {
  std::vector<std::vector<StepRecord>*> all;
  void module(const std::string&, Module& m) override {
    if (auto* const keeps = dynamic_cast<KeepsStepRecords*>(&m)) all.push_back(&keeps->step_records());
  }
};

}  // namespace

std::vector<std::vector<StepRecord>*> step_records_of(Module& root) {
  CollectRecords collect;
  collect("", root);
  return collect.all;
}

}  // namespace orrery::nn
