// What the machine still has for this process.
#pragma once

#include <cstdint>
#include <string_view>

namespace orrery {

// Bytes that can still be allocated before the system refuses or ends the process: free memory and swap, the limits of
// the control groups it runs in, and its limit of addresses (ulimit -v).  What cannot be read does not limit.
int64_t available_memory();
// An Error unless so many bytes can still be allocated.  Less than a megabyte is not checked.
//   read: pairs.tsv needs about 604 MB of memory, 200 MB are free; take fewer data
void check_memory(std::string_view what, double bytes, std::string_view way_out);
// What can be done where memory runs out: the end of such errors.  A program sets what fits its command, in words that
// stay; a library's is to use a smaller batch or context, a smaller model, or less data.
std::string_view way_out_of_memory() noexcept;
void set_way_out_of_memory(std::string_view way_out);
int64_t resident_memory();  // bytes of memory that this process has now; 0 if that cannot be read

}  // namespace orrery
