#include "models/data/algorithmic/base/problem.h"

#include "nn/base/spec_family.h"

namespace orrery::models {

Registry<ProblemEntry>& problems() {
  static Registry<ProblemEntry> all("problem");
  return all;
}
std::unique_ptr<Problem> make_problem(const Spec& spec) { return nn::make_from(problems(), spec); }

const bool family_of_problems = nn::add_spec_family<problems>("problem");

}  // namespace orrery::models
