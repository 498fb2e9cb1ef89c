#include "engine/distributed/ranks.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "engine/system/host.h"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Between two looks at a message: nothing for 200 us, then other threads' turn, from 5 ms on naps
// of 50 us. So a short wait is as fast as spinning, and a long one uses no core.
void pause(double waited) {
  if (waited > 5e-3)
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  else if (waited > 2e-4)
    std::this_thread::yield();
}

// Waits until is_done(), at most this long. Returns whether it is.
template <class IsDone>
bool is_done_within(double seconds, const IsDone& is_done) {
  const auto begin = Clock::now();
  for (double waited = 0; !is_done(); pause(waited))
    if ((waited = seconds_since(begin)) > seconds) return false;
  return true;
}

// Seconds. After the first notice a message of a rank that has not sent one may still arrive.
constexpr double greeting_limit = 60, limit_after_a_loss = 3, limit_of_a_notice = 1, limit_after_a_notice = 0.5;

}  // namespace

Ranks::Ranks(std::unique_ptr<Transport> transport, double wait_limit)
    : transport_(std::move(transport)), rank_(transport_->rank()), count_(transport_->count()),
      prefix_(name_of(rank_) + ": "), wait_limit_(wait_limit) {
  if (count_ > 1) start_notices();
}

void Ranks::greet() {
  const double wait_limit = std::exchange(wait_limit_, greeting_limit);
  stage_ = "the greeting; if the hosts have several networks, name one: --mca btl_tcp_if_include 10.0.0.0/24";
  hosts_ = meet(host_name());
  prefix_ = name_of(rank_) + ": ";
  wait_limit_ = wait_limit, stage_ = "the start";
}

std::string Ranks::name_of(int64_t rank) const {
  const auto i = static_cast<size_t>(rank);
  return text("rank ", rank, i < hosts_.size() ? text(" (host ", hosts_[i], ")") : "");
}

int64_t Ranks::count_on_host() const {
  return count_ == 1 ? 1 : std::count(hosts_.begin(), hosts_.end(), hosts_[static_cast<size_t>(rank_)]);
}

void Ranks::start_notices() {
  notices_.resize(static_cast<size_t>(count_));
  for (int64_t r = 0; r < count_; ++r)
    if (Notice& notice = notices_[static_cast<size_t>(r)]; r != rank_)
      notice.message = transport_->receive(r, Transport::Channel::notice, notice.text, Notice::size);
}

// An empty notice: a rank is silent for longer than the limit.
void Ranks::check_notices() {
  for (int64_t r = 0; r < count_; ++r) {
    Notice& notice = notices_[static_cast<size_t>(r)];
    if (r == rank_ || notice.received || !transport_->is_done(notice.message)) continue;
    notice.received = true;
    if (ended_) continue;
    if (notice.text[0] == '\0') fail_for_silence(r);
    if (heard_.empty()) heard_ = notice.text, heard_at_ = Clock::now();
  }
}

// An error that all ranks find in the same records is each one's error. But the first to find it may notify a rank that
// still waits for a record, which is under way. So a notice ends a wait for a rank that is known to have ended, or
// after a short time.
bool Ranks::must_end_wait(int64_t peer) {
  check_notices();
  if (heard_.empty()) return false;
  return notices_[static_cast<size_t>(peer)].received || seconds_since(heard_at_) > limit_after_a_notice;
}

// A rank may be silent because it waits for another one. So all notify each other, and those that do not answer are
// named.
void Ranks::fail_for_silence(int64_t of_rank) {
  cancel_receives();
  ended_ = lost_ = true;
  send_notices("", "");
  std::string names;
  if (!wait_for_notices(limit_after_a_loss))
    for (int64_t r = 0; r < count_; ++r)
      if (r != rank_ && !notices_[static_cast<size_t>(r)].received) names += (names.empty() ? "" : ", ") + name_of(r);
  fail("ranks: no word from ", names.empty() ? name_of(of_rank) : names, " for ", wait_limit_, " s, in ", stage_);
}

// Before an error leaves the functions whose memory messages would be received in.
void Ranks::cancel_receives() {
  for (const InFlight& message : receives_)
    if (!message.done) transport_->cancel(message.message);
  receives_.clear();
}

void Ranks::send(int64_t to, const void* data, int64_t bytes) {
  bytes_sent_ += bytes;
  for (int64_t at = 0; at < bytes; at += piece_bytes)
    sends_.push_back({transport_->send(to, Transport::Channel::data, static_cast<const std::byte*>(data) + at,
                                       std::min(piece_bytes, bytes - at)),
                      to});
}

IndexRange Ranks::receive(int64_t from, void* data, int64_t bytes) {
  const auto begin = static_cast<int64_t>(receives_.size());
  exchange([&] {
    for (int64_t at = 0; at < bytes; at += piece_bytes) {
      receives_.push_back({-1, from, true});  // before a message that must be cancelled after an error
      receives_.back() = {transport_->receive(from, Transport::Channel::data, static_cast<std::byte*>(data) + at,
                                              std::min(piece_bytes, bytes - at)),
                          from};
    }
  });
  return {begin, static_cast<int64_t>(receives_.size())};
}

void Ranks::wait_for(InFlight& message) {
  const auto begin = Clock::now();
  const auto is_done = [&] { return message.done || (message.done = transport_->is_done(message.message)); };
  bool ends = false;
  if (!is_done_within(wait_limit_, [&] { return is_done() || (ends = must_end_wait(message.peer)); }))
    fail_for_silence(message.peer);
  if (ends && !is_done()) {  // what was sent before the notice has arrived before it
    cancel_receives();
    throw RankEnded(heard_);
  }
  seconds_waited_ += seconds_since(begin);
}

void Ranks::wait(const IndexRange& received) {
  for (int64_t i = received.begin; i < received.end; ++i) wait_for(receives_[static_cast<size_t>(i)]);
  if (std::all_of(receives_.rbegin(), receives_.rend(), [](const InFlight& each) { return each.done; }))
    receives_.clear();
}

void Ranks::wait_for_sends() {
  for (InFlight& message : sends_) wait_for(message);
  sends_.clear();
}

void Ranks::share(void* all, std::span<const IndexRange> bytes) {
  auto* const memory = static_cast<std::byte*>(all);
  std::vector<IndexRange> received;
  const auto more = static_cast<size_t>(count_);  // nothing is sent if there is no memory for the messages
  received.reserve(more), receives_.reserve(receives_.size() + more), sends_.reserve(sends_.size() + more);
  exchange([&] {
    for (int64_t from = 0; from < count_; ++from) {
      const IndexRange& range = bytes[static_cast<size_t>(from)];
      if (from != rank_) received.push_back(receive(from, memory + range.begin, range.size()));
    }
    const IndexRange& mine = bytes[static_cast<size_t>(rank_)];
    for (int64_t i = 1; i < count_; ++i) send((rank_ + i) % count_, memory + mine.begin, mine.size());
    for (const IndexRange& each : received) wait(each);
    wait_for_sends();
  });
}

std::vector<double> Ranks::share_numbers(std::span<const double> mine) {
  const auto size = static_cast<int64_t>(mine.size());
  std::vector<double> all(static_cast<size_t>(count_ * size));
  std::copy(mine.begin(), mine.end(), all.begin() + rank_ * size);
  std::vector<IndexRange> bytes;
  for (int64_t r = 0; r < count_; ++r) bytes.push_back({8 * r * size, 8 * (r + 1) * size});
  share(all.data(), bytes);
  return all;
}
double Ranks::sum(double mine) {
  double all = 0;
  for (const double each : share_numbers({&mine, 1})) all += each;
  return all;
}

std::vector<std::string> Ranks::meet(std::string_view record) {
  std::vector<std::string> records(static_cast<size_t>(count_), std::string(record));
  if (count_ == 1) return records;
  std::vector<int64_t> sizes(static_cast<size_t>(count_), static_cast<int64_t>(record.size()));
  std::vector<IndexRange> bytes;
  for (int64_t r = 0; r < count_; ++r) bytes.push_back({r * 8, (r + 1) * 8});
  share(sizes.data(), bytes);
  int64_t end = 0;
  for (size_t r = 0; r < sizes.size(); ++r) bytes[r] = {end, end + sizes[r]}, end += sizes[r];
  std::string all(static_cast<size_t>(end), '\0');
  std::copy(record.begin(), record.end(), all.begin() + bytes[static_cast<size_t>(rank_)].begin);
  share(all.data(), bytes);
  for (size_t r = 0; r < sizes.size(); ++r)
    records[r] = all.substr(static_cast<size_t>(bytes[r].begin), static_cast<size_t>(bytes[r].size()));
  return records;
}

void Ranks::finish() {
  if (count_ > 1) sum(0);  // no rank can fail between this and its end
  ended_ = true;
  for (const Notice& notice : notices_)
    if (notice.message >= 0) transport_->cancel(notice.message);
  if (transport_) transport_->finish();
}

void Ranks::send_notices(std::string_view prefix, std::string_view text) {
  char* end = std::copy(prefix.begin(), prefix.end(), own_notice_.text);
  end = std::copy_n(text.begin(), std::min(text.size(), Notice::size - 1 - prefix.size()), end);
  *end = '\0';
  for (int64_t r = 0; r < count_; ++r)
    if (r != rank_)
      notices_[static_cast<size_t>(r)].sent =
          transport_->send(r, Transport::Channel::notice, own_notice_.text, Notice::size);
  is_done_within(limit_of_a_notice, [&] {
    for (Notice& notice : notices_)
      if (notice.sent >= 0 && transport_->is_done(notice.sent)) notice.sent = -1;
    return std::all_of(notices_.begin(), notices_.end(), [](const Notice& notice) { return notice.sent < 0; });
  });
}

bool Ranks::wait_for_notices(double seconds) {
  return is_done_within(seconds, [&] {
    check_notices();
    for (int64_t r = 0; r < count_; ++r)
      if (r != rank_ && !notices_[static_cast<size_t>(r)].received) return false;
    return true;
  });
}

bool Ranks::end(std::string_view message) noexcept {
  if (count_ == 1) return true;
  try {
    if (!std::exchange(ended_, true)) {
      send_notices(message == heard_ ? std::string_view() : prefix_, message);
      lost_ |= !wait_for_notices(wait_limit_);
    }
  } catch (...) {  // the network fails too
    lost_ = true;
  }
  while (speaker_ < rank_ && !notices_[static_cast<size_t>(speaker_)].received) ++speaker_;
  return speaker_ == rank_;
}

// The launcher ends all processes as soon as one has ended with an error. So a second notice of the
// rank that prints, its exit code, lets the others end.
int Ranks::leave(int exit_code) noexcept {
  if (count_ == 1) return exit_code;
  try {
    if (speaker_ == rank_) {
      send_notices("", std::to_string(exit_code));
    } else {
      Notice& notice = notices_[static_cast<size_t>(speaker_)];
      const int64_t message = transport_->receive(speaker_, Transport::Channel::notice, notice.text, Notice::size);
      is_done_within(limit_after_a_loss, [&] { return transport_->is_done(message); });
      exit_code = std::max(1, std::atoi(notice.text));
    }
    if (!lost_)
      finish_after_error();
    else if (speaker_ == rank_)
      transport_->end_all(exit_code);
  } catch (...) {
  }
  return exit_code;
}

// An orderly end, after which a launcher reports the exit code and nothing else. Without it, it ends all processes.
void Ranks::finish_after_error() {
  for (InFlight& message : sends_)
    if (!message.done && !(message.done = transport_->is_done(message.message))) return;  // no rank receives it
  transport_->finish();
}

HostCores cores_of(Ranks& ranks) {
  std::string mine;  // a character for each core: whether this rank may use it
  for (const int core : usable_cores()) {
    mine.resize(std::max(mine.size(), static_cast<size_t>(core) + 1), '0');
    mine[static_cast<size_t>(core)] = '1';
  }
  const std::vector<std::string> all = ranks.meet(mine);
  HostCores cores{.of_host = core_count()};
  for (size_t core = 0, next = 0; core < 4096; ++core) {
    std::vector<int64_t> users;
    for (int64_t r = 0; r < ranks.count(); ++r) {
      const std::string& its = all[static_cast<size_t>(r)];
      const bool is_here = ranks.hosts()[static_cast<size_t>(r)] == ranks.hosts()[static_cast<size_t>(ranks.rank())];
      if (is_here && core < its.size() && its[core] == '1') users.push_back(r);
    }
    if (users.empty()) continue;
    ++cores.of_ranks;
    cores.of_rank += users[next++ % users.size()] == ranks.rank();
  }
  if (!mine.empty()) cores.of_rank = std::max(1, cores.of_rank);
  return cores;
}

}  // namespace orrery
