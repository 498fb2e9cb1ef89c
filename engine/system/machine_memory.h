// Memory that the machine has left for this process.
#pragma once

#include <cstdint>
#include <string_view>

namespace orrery {

// Returns the bytes that can be allocated before the system refuses or ends the process. Limits:
// free memory and swap, control groups, addresses (ulimit -v); unreadable ones are ignored.
int64_t available_memory();
// Throws MachineError unless `bytes` more can be allocated. Less than a megabyte is not checked.
//   read: pairs.tsv needs about 604 MB of memory, but only 200 MB are free; use a smaller file
void check_memory(std::string_view what, double bytes, std::string_view advice);
// The advice that ends out-of-memory errors; a program sets one that fits its command, as a static text.
std::string_view out_of_memory_advice() noexcept;
void set_out_of_memory_advice(std::string_view advice);
// Gives the whole pages in this private memory back to the system; they then hold zeros.
void release_pages(void* data, int64_t bytes);
int64_t resident_memory();  // bytes in physical memory; 0 if unreadable

}  // namespace orrery
