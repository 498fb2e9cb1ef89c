// Positions: how a model knows where a token stands.
#pragma once

#include "nn/entry.h"
#include "nn/module.h"

namespace orrery::nn {

struct PositionOptions {
  int64_t context;  // the most positions
  int64_t width;
};
using PositionEntry = Entry<Module, const PositionOptions&>;
Registry<PositionEntry>& positions();
std::unique_ptr<Module> make_position(const Spec& spec, const PositionOptions& options);

#define REGISTER_POSITION(Type) \
  [[maybe_unused]] static const bool registered_##Type = ::orrery::nn::register_type<Type>(::orrery::nn::positions())

}  // namespace orrery::nn
