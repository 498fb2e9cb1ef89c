#include "nn/base/simple_operations.h"

namespace orrery::nn {
namespace {

thread_local int simple_operations = 0;

}  // namespace

SimpleOperations::SimpleOperations() { ++simple_operations; }
SimpleOperations::~SimpleOperations() { --simple_operations; }
bool by_simple_operations() { return simple_operations > 0; }

}  // namespace orrery::nn
