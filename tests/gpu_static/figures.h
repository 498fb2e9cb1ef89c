// What tests/gpu.sh times on a card (`orrery bench`), recorded figure by figure.
#pragma once

#include <cstdio>

void record_figures(std::FILE* file);
