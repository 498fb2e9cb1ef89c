#include "nn/base/reference_mode.h"

namespace orrery::nn {
namespace {

thread_local int reference_mode_depth = 0;

}  // namespace

ReferenceMode::ReferenceMode() { ++reference_mode_depth; }
ReferenceMode::~ReferenceMode() { --reference_mode_depth; }
bool in_reference_mode() { return reference_mode_depth > 0; }

}  // namespace orrery::nn
