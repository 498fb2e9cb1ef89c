// The device that stores a tensor's numbers.
#pragma once

#include <ostream>

namespace orrery {

enum class Device { cpu, cuda };

inline const char* name(Device device) { return device == Device::cpu ? "cpu" : "cuda"; }
inline std::ostream& operator<<(std::ostream& out, Device device) { return out << name(device); }

}  // namespace orrery
