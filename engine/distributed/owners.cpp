#include "engine/distributed/owners.h"

#include <algorithm>

#include "engine/tensor/staging.h"

namespace orrery {
namespace {

IndexRange overlap(const IndexRange& a, const IndexRange& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};  // empty: begin may lie outside of both
}
int64_t element_bytes(const Tensor& x) { return bytes_of(x.dtype()); }

}  // namespace

void Owners::gather(const Tensor& x) const {
  std::vector<IndexRange> bytes;
  for (const IndexRange& range : owned_)
    bytes.push_back({range.begin * element_bytes(x), range.end * element_bytes(x)});
  const HostCopy host(x);
  host.fetch(mine().begin, mine().end);
  ranks_.share(host.tensor().mutable_raw(), bytes);
  host.send(0, x.numel());
}

void Owners::move(const Tensor& tensor, int64_t begin, const IndexRange& part, int64_t from, int64_t to,
                  std::vector<IndexRange>& received) const {
  if (from == to || part.size() == 0) return;
  auto* const at = static_cast<std::byte*>(tensor.mutable_raw()) + (part.begin - begin) * element_bytes(tensor);
  const int64_t bytes = part.size() * element_bytes(tensor);
  if (ranks_.rank() == from) ranks_.send(to, at, bytes);
  if (ranks_.rank() == to) received.push_back(ranks_.receive(from, at, bytes));
}

void Owners::finish(const std::vector<IndexRange>& received) const {
  for (const IndexRange& each : received) ranks_.wait(each);
  ranks_.wait_for_sends();
}

void Owners::move_state(const Tensor& tensor, int64_t begin, bool to_first) const {
  const HostCopy host(tensor);
  host.fetch(0, tensor.numel());
  std::vector<IndexRange> received;
  ranks_.exchange([&] {
    for (int64_t r = 0; r < ranks_.count(); ++r) {
      const IndexRange part = overlap(owned_[static_cast<size_t>(r)], {begin, begin + tensor.numel()});
      move(host.tensor(), begin, part, to_first ? r : 0, to_first ? 0 : r, received);
    }
    finish(received);
  });
  if (!received.empty()) host.send(0, tensor.numel());
}

int64_t Owners::owner_of(const IndexRange& range) const {
  int64_t r = 0;
  while (r + 1 < ranks_.count() && owned_[static_cast<size_t>(r)].end <= range.begin) ++r;
  return r;
}

void Owners::complete(const Tensor& x, std::span<const IndexRange> ranges) const {
  ranks_.exchange([&] {
    std::vector<IndexRange> received;
    for (const IndexRange& range : ranges) {
      const int64_t to = owner_of(range);
      for (int64_t from = to + 1; from < ranks_.count(); ++from)
        move(x, 0, overlap(owned_[static_cast<size_t>(from)], range), from, to, received);
    }
    finish(received);
  });
}

void Owners::share(std::span<const IndexRange> ranges, std::span<double> numbers) const {
  std::vector<IndexRange> bytes;
  int64_t begin = 0;
  for (int64_t r = 0; r < ranks_.count(); ++r) {
    int64_t end = begin;
    while (end < static_cast<int64_t>(ranges.size()) && owner_of(ranges[static_cast<size_t>(end)]) == r) ++end;
    bytes.push_back({begin * 8, end * 8});
    begin = end;
  }
  ranks_.share(numbers.data(), bytes);
}

void broadcast(Ranks& ranks, const Tensor& x) {
  std::vector<IndexRange> bytes(static_cast<size_t>(ranks.count()), IndexRange{0, 0});
  bytes[0] = {0, static_cast<int64_t>(x.bytes())};
  const HostCopy host(x);
  host.fetch(0, x.numel());
  ranks.share(host.tensor().mutable_raw(), bytes);
  if (!ranks.is_first()) host.send(0, x.numel());
}

}  // namespace orrery
