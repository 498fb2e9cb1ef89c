// Messages between the processes of a run, as an MPI library carries them (mpi.cpp). Only the
// thread that made the transport uses it.
#pragma once

#include <cstdint>

namespace orrery {

class Transport {
 public:
  enum class Channel : int { data, notice };

  virtual ~Transport() = default;
  virtual int64_t rank() const = 0;  // of this process, from 0
  virtual int64_t count() const = 0;

  // Start a message of at most 1 GiB and return its number. Its memory must stay, and a sent one
  // unchanged, until is_done(number) has returned true, which it does once. From one process to
  // another, messages of a channel arrive in the order in which they were sent.
  virtual int64_t send(int64_t to, Channel channel, const void* data, int64_t bytes) = 0;
  virtual int64_t receive(int64_t from, Channel channel, void* data, int64_t bytes) = 0;
  virtual bool is_done(int64_t message) = 0;  // also lets all messages progress
  virtual void cancel(int64_t message) = 0;   // of one to receive; its memory is not written to any more

  virtual void finish() = 0;          // the orderly end, after all messages; called by all processes
  virtual void end_all(int code) = 0;  // lets the launcher end all processes, also those that do not answer
};

// A library of mpi.cpp exports this function, which makes the transport of this process.
inline constexpr const char* make_transport_name = "orrery_make_transport";
using MakeTransport = Transport* (*)();

}  // namespace orrery
