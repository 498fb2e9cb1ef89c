// The processes of a run, its ranks, and how they meet. A process without others is rank 0 of 1;
// nothing here then waits or copies. Every function that all ranks call together says so.
//
// How errors travel: a rank that ends with an error calls end(). Every wait of the others then throws RankEnded with
// its message, at once if it waits for that rank; they call end() too. So no rank waits for one that has ended. If a
// wait takes longer than the limit, all notify each other, and name those that do not answer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/distributed/part_tree.h"
#include "engine/distributed/transport.h"
#include "engine/types/check.h"

namespace orrery {

class RankEnded : public Error {  // another rank has ended with an error
 public:
  using Error::Error;
};

class Ranks {
 public:
  static constexpr int64_t piece_bytes = int64_t{1} << 20;

  Ranks() = default;
  // wait_limit: seconds without a message, after which a wait throws.
  Ranks(std::unique_ptr<Transport> transport, double wait_limit);
  Ranks(const Ranks&) = delete;
  void greet();  // called by all ranks together, first; learns the hosts of the others

  int64_t rank() const { return rank_; }
  int64_t count() const { return count_; }
  bool is_first() const { return rank_ == 0; }
  std::string name_of(int64_t rank) const;  // "rank 2 (host c)"
  const std::vector<std::string>& hosts() const { return hosts_; }
  int64_t count_on_host() const;  // of this rank
  IndexRange share_of_mine(int64_t count) const { return share_of(count, count_, rank_); }

  void set_wait_limit(double seconds) { wait_limit_ = seconds; }
  void set_stage(std::string stage) { stage_ = std::move(stage); }  // "step 120", for error messages

  // Called by all ranks together. Returns everybody's record, by rank.
  std::vector<std::string> meet(std::string_view record);
  // Called by all ranks together. Rank r has bytes[r] of the memory `all`; afterwards all have all of it.
  void share(void* all, std::span<const IndexRange> bytes);

  // Called by all ranks together. Returns everybody's numbers, equally many, by rank; or their sum, by rank.
  std::vector<double> share_numbers(std::span<const double> mine);
  double sum(double mine);

  // Messages, long ones in pieces. From one rank to another they arrive in the order in which they
  // were sent. Their memory stays until wait_for_sends() or wait(what receive returned) has returned.
  void send(int64_t to, const void* data, int64_t bytes);
  IndexRange receive(int64_t from, void* data, int64_t bytes);
  void wait(const IndexRange& received);
  void wait_for_sends();
  // Calls `work`, which receives in memory of its caller. After an error nothing is received there any more.
  template <class Work>
  void exchange(const Work& work) {
    try {
      work();
    } catch (...) {
      cancel_receives();
      throw;
    }
  }

  int64_t bytes_sent() const { return bytes_sent_; }
  double seconds_waited() const { return seconds_waited_; }

  // The orderly end; called by all ranks together, once.
  void finish();
  // Notifies the others that this rank ends with the error `message`, and waits for their answers.
  // Returns true on the one rank that prints it. leave() returns when that has been done, on all
  // ranks with its exit code. Neither allocates memory, which may be exhausted.
  bool end(std::string_view message) noexcept;
  int leave(int exit_code) noexcept;

 private:
  struct Notice {
    static constexpr size_t size = 1024;
    char text[size];
    int64_t message = -1, sent = -1;  // in flight: from the rank, and to it
    bool received = false;
  };
  struct InFlight {
    int64_t message, peer;
    bool done = false;
  };
  void start_notices();
  void check_notices();  // throws for an empty one
  bool must_end_wait(int64_t peer);
  [[noreturn]] void fail_for_silence(int64_t of_rank);
  void send_notices(std::string_view prefix, std::string_view text);
  bool wait_for_notices(double seconds);
  void cancel_receives();
  void finish_after_error();
  void wait_for(InFlight& message);

  std::unique_ptr<Transport> transport_;
  int64_t rank_ = 0, count_ = 1;
  std::vector<std::string> hosts_;
  std::string prefix_;  // of this rank's error messages
  double wait_limit_ = 0;
  std::string stage_;
  std::vector<Notice> notices_;    // from each rank
  Notice own_notice_{};
  std::vector<InFlight> sends_, receives_;
  int64_t bytes_sent_ = 0;
  double seconds_waited_ = 0;
  bool ended_ = false, lost_ = false;
  std::string heard_;    // the error of another rank
  std::chrono::steady_clock::time_point heard_at_;
  int64_t speaker_ = 0;  // after an error: the rank that prints it
};

struct HostCores {
  int of_rank = 0;                // for this rank, at least 1; 0: unknown
  int of_ranks = 0, of_host = 0;  // that the ranks of its host may use, and all
};
// Called by all ranks together. Gives each core of a host to one of the ranks that may use it.
HostCores cores_of(Ranks& ranks);

}  // namespace orrery
