// The output of `orrery --version`: program and machine, as far as they affect speed and bits.
#pragma once

#include <string>

namespace orrery::program {

std::string version_text();

}  // namespace orrery::program
