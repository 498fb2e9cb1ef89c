// What `orrery --version` prints: this program and this machine, as far as they decide speed and bits.
#pragma once

#include <string>

namespace orrery::program {

std::string version_text();

}  // namespace orrery::program
