// Memory and order of work on a GPU, for plain C++: no word of CUDA in this header.
//
// All work goes to one stream of our own, in the order of the calls.  Whatever CUDA refuses becomes an Error that names
// the operation, the place and the shape of the launch.
#pragma once

#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>

namespace orrery::cuda {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

int device_count();         // 0 without a card or without a driver
std::string device_name();  // of the card in use

void* allocate(int64_t bytes);  // aligned to 256 bytes, contents undefined; nullptr if the memory is used up
void free(void* data);

// When one side is the host, the bytes have arrived on return.  Between two places on the device the copy is queued.
void copy(void* to, bool to_device, const void* from, bool from_device, int64_t bytes);
void zero(void* data, int64_t bytes);  // queued

void synchronize();  // returns when all queued work is done

// Scratch memory for the kernels that are launched while this object lives.  The runtime keeps the block and grows it;
// one Workspace exists at a time, and a second thread that wants one waits.
class Workspace {
 public:
  explicit Workspace(int64_t bytes);
  void* data() const { return data_; }

 private:
  std::unique_lock<std::mutex> lock_;
  void* data_;
};

}  // namespace orrery::cuda
