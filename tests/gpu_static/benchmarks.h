// The benchmarks of tests/gpu.sh (`orrery bench`), recorded one by one.
#pragma once

#include <cstdio>

void record_benchmarks(std::FILE* file);
