// Ranks, on threads of the test: meetings, sums of gradients, owners, and how errors travel.
#include "engine/distributed/ranks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/distributed/gradient_sum.h"
#include "engine/distributed/launcher.h"
#include "engine/distributed/owners.h"
#include "engine/system/host.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"
#include "tests/support/thread_ranks.h"

using namespace orrery;
using orrery::testing::expect_error;
using orrery::testing::on_thread_ranks;
using orrery::testing::random_tensor;

namespace {

std::mutex checks;  // doctest counts checks of several threads, but their messages would mix
template <class Check>
void in_turn(const Check& check) {
  const std::lock_guard lock(checks);
  check();
}

// Cuts of n elements among `count` ranks at uneven places; some ranks may own nothing.
std::vector<IndexRange> uneven_cuts(int64_t n, int64_t count) {
  std::vector<IndexRange> owned;
  for (int64_t r = 0, begin = 0; r < count; ++r) {
    const int64_t end = r + 1 == count ? n : std::min(n, begin + (r * 7919 + n / 2) % (n + 1) / 2);
    owned.push_back({begin, end});
    begin = end;
  }
  return owned;
}

Tensor sum_of_parts(int64_t begin, int64_t end, const std::vector<Tensor>& parts) {
  if (end - begin == 1) return parts[static_cast<size_t>(begin)];
  int64_t first = 1;
  while (2 * first < end - begin) first *= 2;
  const Tensor a = sum_of_parts(begin, begin + first, parts), b = sum_of_parts(begin + first, end, parts);
  std::vector<double> sum = a.to_vector();
  const std::vector<double> rest = b.to_vector();
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += rest[i];
  return Tensor::from(a.shape(), sum, a.dtype());
}

}  // namespace

TEST_CASE("ranks: all get everybody's record, of any length, in order") {
  for (const int64_t count : {1, 2, 3, 5})
    on_thread_ranks(count, [&](Ranks& ranks) {
      for (const size_t length : {size_t{0}, size_t{7}, size_t{2'500'000}}) {
        const auto record = [&](int64_t r) {
          return r == 1 ? std::string() : std::string(length, static_cast<char>('a' + r));
        };
        const std::vector<std::string> all = ranks.meet(record(ranks.rank()));
        in_turn([&] {
          REQUIRE(static_cast<int64_t>(all.size()) == count);
          for (int64_t r = 0; r < count; ++r) CHECK(all[static_cast<size_t>(r)] == record(r));
        });
      }
      const double sum = ranks.sum(static_cast<double>(ranks.rank() + 1));
      in_turn([&] {
        CHECK(sum == static_cast<double>(count * (count + 1) / 2));
        CHECK(ranks.name_of(ranks.rank()).starts_with("rank "));
      });
      ranks.finish();
    });
}

TEST_CASE("ranks: the sum over all parts has the tree's bits at each owner, for any number of ranks") {
  constexpr int64_t n = 300'000;  // more than one piece of a megabyte
  for (const int64_t parts : {1, 3, 5, 8, 12})
    for (int64_t count = 1; count <= std::min<int64_t>(parts, 5); ++count)
      for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
        const int64_t size = parts == 5 ? n : 1000;
        std::vector<Tensor> of_parts;
        for (int64_t part = 0; part < parts; ++part)
          of_parts.push_back(random_tensor({size}, static_cast<int>(part), dtype));
        const std::vector<double> expected = sum_of_parts(0, parts, of_parts).to_vector();
        const std::vector<IndexRange> owned = uneven_cuts(size, count);
        on_thread_ranks(count, [&](Ranks& ranks) {
          const Tensor gradient = Tensor::zeros({size}, dtype);
          const IndexRange share = ranks.share_of_mine(parts);
          GradientSum sum(gradient, parts, share);
          for (int step = 0; step < 2; ++step) {
            for (int64_t part = share.begin; part < share.end; ++part) {
              gradient.copy_from(of_parts[static_cast<size_t>(part)]);
              sum.take(part);
            }
            const int64_t before = ranks.bytes_sent();
            sum.add_up(ranks, owned);
            const auto nodes = static_cast<int64_t>(PartTree(parts).nodes_of(share).size());
            const IndexRange mine = owned[static_cast<size_t>(ranks.rank())];
            const std::vector<double> found = gradient.to_vector();
            in_turn([&] {
              CAPTURE(parts);
              CAPTURE(count);
              CHECK(ranks.bytes_sent() - before == nodes * (size - mine.size()) * bytes_of(dtype));
              CHECK(std::equal(found.begin() + mine.begin, found.begin() + mine.end, expected.begin() + mine.begin));
            });
          }
          ranks.finish();
        });
      }
}

TEST_CASE("owners: elements reach all, rank 0, or their owners; a range that is cut reaches its first element's") {
  constexpr int64_t n = 1000, begin = 130, length = 700;
  for (const int64_t count : {1, 2, 3, 5}) {
    const std::vector<IndexRange> owned = uneven_cuts(n, count);
    on_thread_ranks(count, [&](Ranks& ranks) {
      const Owners owners(ranks, owned);
      const Tensor truth = random_tensor({n}, 1, Dtype::f32), nothing = Tensor::zeros({n}, Dtype::f32);
      const auto mine_alone = [&] {
        const Tensor x = nothing.clone();
        const IndexRange& mine = owners.mine();
        if (mine.size() > 0)
          x.flat_view(mine.begin, Shape{mine.size()}).copy_from(truth.flat_view(mine.begin, Shape{mine.size()}));
        return x;
      };
      const Tensor all = mine_alone(), first = mine_alone(), back = ranks.is_first() ? truth.clone() : nothing.clone();
      owners.gather(all);
      owners.move_state(first.flat_view(begin, Shape{length}), begin, true);
      owners.move_state(back.flat_view(begin, Shape{length}), begin, false);
      const std::vector<IndexRange> ranges = {{0, 10}, {10, 400}, {400, 400}, {400, 990}, {990, n}};
      const Tensor completed = mine_alone();
      owners.complete(completed, ranges);
      std::vector<double> numbers(ranges.size(), -1);
      for (size_t i = 0; i < ranges.size(); ++i)
        if (owners.is_mine(ranges[i])) numbers[i] = static_cast<double>(i);
      owners.share(ranges, numbers);
      const Tensor copied = ranks.is_first() ? truth.clone() : nothing.clone();
      broadcast(ranks, copied);
      in_turn([&] {
        CHECK(all.to_vector() == truth.to_vector());
        CHECK(copied.to_vector() == truth.to_vector());
        const std::vector<double> right = truth.to_vector(), of_first = first.to_vector(), of_owner = back.to_vector(),
                                  of_ranges = completed.to_vector();
        for (size_t i = begin; i < begin + length; ++i) {
          if (ranks.is_first()) CHECK(of_first[i] == right[i]);
          const auto at = static_cast<int64_t>(i);
          if (owners.mine().begin <= at && at < owners.mine().end) CHECK(of_owner[i] == right[i]);
        }
        for (size_t k = 0; k < ranges.size(); ++k) {
          CHECK(numbers[k] == static_cast<double>(k));
          if (owners.is_mine(ranges[k]))
            CHECK(std::equal(of_ranges.begin() + ranges[k].begin, of_ranges.begin() + ranges[k].end,
                             right.begin() + ranges[k].begin));
        }
      });
      ranks.finish();
    });
  }
}

TEST_CASE("ranks: an error on one rank ends all, and the lowest one prints it") {
  for (const int64_t failing : {0, 1, 2}) {
    std::vector<std::string> messages(3);
    std::vector<int> codes(3), speaks(3);
    on_thread_ranks(3, [&](Ranks& ranks) {
      const auto r = static_cast<size_t>(ranks.rank());
      try {
        ranks.meet("all are there");
        if (ranks.rank() == failing) fail("the disk is full");
        ranks.meet("this one misses one");
      } catch (const Error& error) {
        messages[r] = error.what();
        speaks[r] = ranks.end(error.what());
        codes[r] = ranks.leave(speaks[r] ? 7 : 1);
      }
    });
    const std::string name = "rank " + std::to_string(failing) + " (host " + host_name() + "): the disk is full";
    for (size_t r = 0; r < 3; ++r) {
      CHECK(messages[r] == (static_cast<int64_t>(r) == failing ? "the disk is full" : name));
      CHECK(codes[r] == 7);
      CHECK(speaks[r] == (r == 0));
    }
  }
}

// Rank 2 ends before rank 1 sends. Without the wait rank 0 would print rank 2's error instead of the one that it finds.
TEST_CASE("ranks: after a rank's error a message of another one still arrives, and a wait for that rank ends") {
  std::vector<std::string> messages(3);
  int64_t received = 0;
  on_thread_ranks(3, [&](Ranks& ranks) {
    try {
      int64_t number = 7;
      if (ranks.rank() == 2) fail("the disk is full");
      if (ranks.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        ranks.send(0, &number, 8);
      } else {
        number = 0;
        ranks.wait(ranks.receive(1, &number, 8));
        received = number;
      }
      ranks.wait(ranks.receive(2, &number, 8));
    } catch (const Error& error) {
      messages[static_cast<size_t>(ranks.rank())] = error.what();
      ranks.leave(ranks.end(error.what()) ? 7 : 1);
    }
  });
  CHECK(received == 7);
  const std::string name = "rank 2 (host " + host_name() + "): the disk is full";
  CHECK(messages == std::vector{name, name, std::string("the disk is full")});
}

TEST_CASE("ranks: a rank without a word for longer than the limit is named") {
  on_thread_ranks(
      2,
      [&](Ranks& ranks) {
        ranks.set_stage("step 120");
        if (ranks.rank() == 1) return;  // it hangs
        const auto wait = [&] { ranks.meet(""); };
        expect_error(wait).names("rank 1").value(host_name()).value("0.2 s").value("step 120");
      },
      0.2);
}

TEST_CASE("ranks: a process without others is rank 0 of 1, and nothing waits") {
  Ranks alone;
  CHECK(alone.is_first());
  CHECK(alone.count() == 1);
  CHECK(alone.meet("x") == std::vector<std::string>{"x"});
  CHECK(alone.sum(3) == 3);
  CHECK(alone.end("an error"));
  CHECK(alone.leave(2) == 2);
  alone.finish();
}

TEST_CASE("ranks: the launcher is known by its environment") {
  struct Restore {
    ~Restore() {
      for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "PMI_RANK"})
        ::unsetenv(variable);
    }
  } restore;
  CHECK(launch_of_process().by == Launch::By::none);
  CHECK(!launch_of_process().has_others());
  ::setenv("PMI_SIZE", "3", 1), ::setenv("PMI_RANK", "2", 1);
  CHECK(launch_of_process().by == Launch::By::mpich);
  CHECK(launch_of_process().rank == 2);
  CHECK(launch_of_process().count == 3);
  ::setenv("OMPI_COMM_WORLD_SIZE", "1", 1), ::setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  CHECK(launch_of_process().by == Launch::By::open_mpi);
  CHECK(!launch_of_process().has_others());
}

TEST_CASE("ranks: every core of a host is given to one of the ranks that may use it") {
  std::vector<HostCores> cores(3);
  on_thread_ranks(3, [&](Ranks& ranks) { cores[static_cast<size_t>(ranks.rank())] = cores_of(ranks); });
  int all = 0;
  for (const HostCores& each : cores) {
    CHECK(each.of_rank >= 1);
    CHECK(each.of_ranks == static_cast<int>(usable_cores().size()));
    CHECK(each.of_host == core_count());
    all += each.of_rank;
  }
  CHECK(all == std::max(3, static_cast<int>(usable_cores().size())));
}
