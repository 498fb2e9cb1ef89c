// Tables of signal propagation at initialization, measured by --signal_propagation=yes.
#pragma once

#include <string>

#include "models/training/signal_propagation.h"

namespace orrery::program {

std::string signal_propagation_table(const models::SignalPropagation& propagation);  // ends with a newline

}  // namespace orrery::program
