#include "tests/support/tile_copies.h"

#include <algorithm>

#include "tests/support/cuda_on_cpu.h"
#include "tests/support/early_launch.h"
#include "tests/support/fibers.h"
#include "tests/support/scheduler.h"

namespace cuda_on_cpu {
namespace {

constexpr size_t chunk = 16, line = 128, element = 2;  // bytes

size_t bytes_of(const EncodedTensor& t) { return size_t{t.box[0]} * t.box[1] * t.box[2] * t.box[3] * element; }

EncodedTensor checked_tensor(const void* map, const void* shared, Site site) {
  EncodedTensor tensor;
  std::memcpy(&tensor, map, sizeof tensor);
  if (tensor.mark != EncodedTensor::valid) stop("tile copy: its tensor map is not encoded, at " + text(site));
  if (reinterpret_cast<uintptr_t>(shared) % line || !holds_shared(shared, bytes_of(tensor)))
    stop("tile copy: its place in shared memory is outside of it or not aligned to 128 bytes, at " + text(site));
  return tensor;
}

// Calls f(chunk in shared memory, its first byte in the tensor, begin, end) for each chunk of a tile.
// Its bytes from begin to end are in the tensor. Chunk c of line l is stored at c ^ l % 8, where l
// counts lines from the beginning of shared memory.
template <class F>
void each_chunk(const EncodedTensor& t, const int (&at)[4], unsigned char* shared, const F& f) {
  const unsigned first = shared_address(shared);
  unsigned char* const base = shared - first;
  const auto inside = [&](int d, int64_t i) { return i >= 0 && i < static_cast<int64_t>(t.size[d]); };
  const auto clamp = [&](int64_t e) { return std::clamp<int64_t>(e, 0, static_cast<int64_t>(t.size[0])); };
  size_t offset = first;
  for (int64_t i3 = at[3]; i3 < at[3] + t.box[3]; ++i3)
    for (int64_t i2 = at[2]; i2 < at[2] + t.box[2]; ++i2)
      for (int64_t i1 = at[1]; i1 < at[1] + t.box[1]; ++i1)
        for (int64_t i0 = at[0]; i0 < at[0] + t.box[0]; i0 += chunk / element, offset += chunk) {
          const bool row = inside(1, i1) && inside(2, i2) && inside(3, i3);
          const int64_t begin = row ? clamp(i0) : 0, end = row ? clamp(i0 + int64_t{chunk / element}) : 0;
          const auto start = reinterpret_cast<intptr_t>(t.data) + i3 * static_cast<int64_t>(t.stride[3]) +
                             i2 * static_cast<int64_t>(t.stride[2]) + i1 * static_cast<int64_t>(t.stride[1]);
          const size_t skipped = begin < end ? static_cast<size_t>(begin - i0) * element : 0;
          f(base + (offset ^ (offset / line % 8 * chunk)),
            reinterpret_cast<unsigned char*>(start + begin * int64_t{element}), skipped,
            static_cast<size_t>(end - begin) * element);
        }
}

void check_in_flight(const unsigned char* to, size_t bytes, Site site) {
  std::vector<unsigned char> unset(bytes);
  never_set(unset.data(), bytes);
  if (!std::equal(unset.begin(), unset.end(), to))
    stop("copy to shared memory: a thread wrote to its destination before it landed; started at " + text(site));
}

}  // namespace

void load_tile(void* to, const void* map, void* barrier, const int (&at)[4], Site site) {
  const NotOfThread access;
  if (is_dropped(site)) return;
  const EncodedTensor tensor = checked_tensor(map, to, site);
  const size_t bytes = bytes_of(tensor);
  ClosedMemory::access(tensor.data);
  hidden_writes().check(to, bytes, "a tile copy", site);
  never_set(to, bytes);
  const auto land = [=, c0 = at[0], c1 = at[1], c2 = at[2], c3 = at[3]] {
    check_in_flight(static_cast<unsigned char*>(to), bytes, site);
    each_chunk(tensor, {c0, c1, c2, c3}, static_cast<unsigned char*>(to),
               [](unsigned char* shared, const unsigned char* from, size_t skipped, size_t valid) {
                 std::memset(shared, 0, chunk);
                 std::memcpy(shared + skipped, from, valid);
               });
  };
  arrivals().start_copy(barrier, static_cast<int64_t>(bytes), land, site);
}

void load_bulk(void* to, const void* from, unsigned bytes, void* barrier, Site site) {
  const NotOfThread access;
  if (is_dropped(site)) return;
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % chunk == 0; };
  if (!aligned(to) || !aligned(from) || bytes % chunk)
    stop("bulk copy: an address or the number of bytes is not a multiple of 16, at " + text(site));
  if (!holds_shared(to, bytes)) stop("bulk copy: its destination is outside shared memory, at " + text(site));
  ClosedMemory::access(from);
  hidden_writes().check(to, bytes, "a bulk copy", site);
  never_set(to, bytes);
  const auto land = [=] {
    check_in_flight(static_cast<unsigned char*>(to), bytes, site);
    std::memcpy(to, from, bytes);
  };
  arrivals().start_copy(barrier, bytes, land, site);
}

static void write_tile(const EncodedTensor& tensor, const int (&at)[4], unsigned char* from) {
  each_chunk(tensor, at, from, [](const unsigned char* shared, unsigned char* to, size_t skipped, size_t valid) {
    std::memcpy(to, shared + skipped, valid);
  });
}
void TileStores::start(const void* map, const void* from, const int (&at)[4], Site site) {
  const NotOfThread access;
  if (is_dropped(site)) return;
  const EncodedTensor tensor = checked_tensor(map, from, site);
  ClosedMemory::access(tensor.data);
  hidden_writes().check(from, bytes_of(tensor), "a tile copy", site);
  auto* const first = static_cast<unsigned char*>(const_cast<void*>(from));
  started_.push_back(
      {tensor, first, {at[0], at[1], at[2], at[3]}, {first, first + bytes_of(tensor)}, committed_, site});
  if (options.landing == Landing::early) write_tile(tensor, at, first);
}
void TileStores::commit(Site site) {
  if (!is_dropped(site)) ++committed_;
}
void TileStores::wait(int in_flight, Site site) {
  const NotOfThread access;
  if (is_dropped(site)) return;
  const auto is_read = [&](const Store& store) { return store.group < committed_ - in_flight; };
  for (const Store& store : started_) {
    if (!is_read(store)) continue;
    if (!std::equal(store.source.begin(), store.source.end(), store.from))
      stop("tile copy: its source changed before the wait for it; started at " + text(store.site));
    if (options.landing == Landing::late) write_tile(store.tensor, store.at, store.from);
  }
  std::erase_if(started_, is_read);
}
void TileStores::check_end() const {
  if (!started_.empty())
    stop("a thread leaves its kernel without waiting for a tile copy, started at " + text(started_[0].site));
}

void HiddenWrites::write(const void* chunk_of_16) {
  const NotOfThread access;
  const auto at = reinterpret_cast<uintptr_t>(chunk_of_16);
  writer_[at] = {running_thread(), false};
  of_thread_[running_thread()].push_back(at);
}
void HiddenWrites::show() {
  const NotOfThread access;
  for (const uintptr_t at : of_thread_[running_thread()])
    if (const auto found = writer_.find(at); found != writer_.end() && found->second.thread == running_thread())
      found->second.shown = true;
}
void HiddenWrites::meet() {
  const NotOfThread access;
  const auto mine = of_thread_.find(running_thread());
  if (mine == of_thread_.end()) return;
  std::erase_if(mine->second, [&](uintptr_t at) {
    const auto found = writer_.find(at);
    if (found == writer_.end() || found->second.thread != running_thread()) return true;
    if (!found->second.shown) return false;
    writer_.erase(found);
    return true;
  });
}
void show_writes(Site site) {
  if (is_dropped(site)) return;
  copies().make_visible();
  hidden_writes().show();
}
void HiddenWrites::check(const void* first, size_t bytes, const char* reader, Site site) const {
  const auto begin = reinterpret_cast<uintptr_t>(first);
  for (auto at = writer_.lower_bound(begin / chunk * chunk); at != writer_.end() && at->first < begin + bytes; ++at) {
    const std::string wrote = std::string(reader) + " accesses shared memory that a thread wrote without ";
    if (!at->second.shown) stop(wrote + "shared_written(), at " + text(site));
    if (at->second.thread != running_thread()) stop(wrote + "a barrier after it, at " + text(site));
  }
}

}  // namespace cuda_on_cpu
