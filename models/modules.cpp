#include "models/modules.h"

namespace orrery::models {
namespace {

class Modules final : public nn::Visitor {
 public:
  std::vector<std::pair<std::string, nn::Module*>> all;

 protected:
  void module(const std::string& path, nn::Module& module) override { all.emplace_back(path, &module); }
};

}  // namespace

std::vector<std::pair<std::string, nn::Module*>> modules_of(nn::Module& root) {
  Modules modules;
  root.visit(modules);
  return std::move(modules.all);
}

}  // namespace orrery::models
