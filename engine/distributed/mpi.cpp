// The transport over MPI. This file alone includes mpi.h. It is one library for each MPI that
// the build found, which launcher.cpp opens, so that a program of one process loads no MPI.
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "engine/distributed/transport.h"
#include "engine/types/check.h"

namespace orrery {
namespace {

void check_mpi(int result, const char* what) {
  if (result == MPI_SUCCESS) return;
  char message[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, message, &length);
  fail("ranks: MPI cannot ", what, ": ", std::string(message, static_cast<size_t>(length)));
}

[[maybe_unused]] constexpr std::chrono::milliseconds half_a_second(500);

class MpiTransport final : public Transport {
 public:
  MpiTransport() {
    int provided = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "start");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &count_);
    requests_.resize(for_notices(), MPI_REQUEST_NULL);
  }
  int64_t rank() const override { return rank_; }
  int64_t count() const override { return count_; }

  int64_t send(int64_t to, Channel channel, const void* data, int64_t bytes) override {
    const size_t free = free_request(channel);
    check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(to), static_cast<int>(channel),
                        MPI_COMM_WORLD, &requests_[free]),
              "send");
    return static_cast<int64_t>(free);
  }
  int64_t receive(int64_t from, Channel channel, void* data, int64_t bytes) override {
    const size_t free = free_request(channel);
    check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(from), static_cast<int>(channel),
                        MPI_COMM_WORLD, &requests_[free]),
              "receive");
    return static_cast<int64_t>(free);
  }
  bool is_done(int64_t message) override {
    int done = 0;
    check_mpi(MPI_Test(&requests_[static_cast<size_t>(message)], &done, MPI_STATUS_IGNORE), "exchange data");
    return done != 0;
  }
  void cancel(int64_t message) override {
    MPI_Request& request = requests_[static_cast<size_t>(message)];
    check_mpi(MPI_Cancel(&request), "cancel a message");
    // One that is half received cannot be cancelled, and never ends if its sender has ended.
    for (int naps = 0, done = 0; naps < 1000 && done == 0; ++naps) {
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "cancel a message");
      if (done == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void finish() override {
#if defined(MPICH_VERSION)
    // Over TCP, a process of MPICH before 4.2 in MPI_Finalize needs answers of the others, which they give before
    // MPI_Finalize or at its begin, but not later (mpich#6596). So all begin when none receives messages any more.
    std::this_thread::sleep_for(half_a_second);
#endif
    ::alarm(60);  // for a host that is lost now
    check_mpi(MPI_Finalize(), "end");
    ::alarm(0);
  }
  // Open MPI ends all when one process ends with an error; after MPI_Abort it would wait for a host that is lost.
  void end_all([[maybe_unused]] int code) override {
#if defined(MPICH_VERSION)
    std::this_thread::sleep_for(half_a_second);  // the launcher forwards what was printed
    ::alarm(2);                                  // on the host that is lost, MPI_Abort does not return
    MPI_Abort(MPI_COMM_WORLD, code);
#endif
  }

 private:
  // The first requests are for the notices of an end, which must not need memory: two from each rank, two to it.
  size_t for_notices() const { return 4 * static_cast<size_t>(count_); }
  // A request that is done is MPI_REQUEST_NULL again.
  size_t free_request(Channel channel) {
    for (size_t i = channel == Channel::notice ? 0 : for_notices(); i < requests_.size(); ++i)
      if (requests_[i] == MPI_REQUEST_NULL) return i;
    requests_.push_back(MPI_REQUEST_NULL);
    return requests_.size() - 1;
  }
  int rank_ = 0, count_ = 1;
  std::vector<MPI_Request> requests_;
};

}  // namespace
}  // namespace orrery

extern "C" orrery::Transport* orrery_make_transport() { return new orrery::MpiTransport; }
