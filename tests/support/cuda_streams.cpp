// CUDA streams, graphs, events and pinned memory of the emulated device.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/failing_calls.h"
#include "tests/support/pending_work.h"

struct cudaGraph {
  std::vector<std::function<cudaError_t()>> work;
};
struct cudaGraphExec {
  std::vector<std::function<cudaError_t()>> work;
};
struct cudaStream {
  std::unique_ptr<cudaGraph> recorded;  // while the stream captures
  bool spoiled = false;                 // a call was made that cannot be captured
};
namespace {
struct Work {  // the latest work of a thread in a stream
  cudaStream_t stream;
  std::thread::id thread;
  uint64_t position;
};
struct Transfer {
  cudaStream_t stream;
  uint64_t position;
  unsigned char* pinned;
  bool to_host;
  std::vector<unsigned char> bytes;
};
std::mutex flight_mutex;  // guards all variables below
std::vector<Work> unwaited;
std::vector<Transfer> transfers;
std::map<const void*, size_t> pinned;  // blocks and their sizes in bytes
uint64_t positions = 0;                // number of work items queued so far

thread_local cudaStream_t replaying = nullptr;  // the stream of the running replay
cudaStream_t in_use(cudaStream_t stream) { return replaying ? replaying : stream; }

// Waiting for a capturing stream is invalid: its work has not begun.
cudaError_t refuse_while_recording(cudaStream_t stream) {
  if (!stream->recorded) return cudaSuccess;
  stream->spoiled = true;
  return cudaErrorStreamCaptureUnsupported;
}

// Completes a copy. Throws a Fault if the host wrote to the pinned memory during the copy.
void land(const Transfer& transfer) {
  std::vector<unsigned char> expected = transfer.bytes;
  if (transfer.to_host) cuda_on_cpu::never_set(expected.data(), expected.size());
  const bool untouched = std::equal(expected.begin(), expected.end(), transfer.pinned);
  if (transfer.to_host) std::copy(transfer.bytes.begin(), transfer.bytes.end(), transfer.pinned);
  if (!untouched)
    throw cuda_on_cpu::Fault(std::string("pinned memory: the host wrote to it while a copy ") +
                             (transfer.to_host ? "to" : "from") + " it was in flight");
}
cudaError_t wait_for(cudaStream_t stream, uint64_t position) {
  const std::lock_guard lock(flight_mutex);
  const auto done = [&](const Transfer& t) { return t.stream == stream && t.position <= position; };
  std::vector<Transfer> landing;
  std::copy_if(transfers.begin(), transfers.end(), std::back_inserter(landing), done);
  std::erase_if(transfers, done);
  std::erase_if(unwaited, [&](const Work& work) { return work.stream == stream && work.position <= position; });
  for (const Transfer& transfer : landing) land(transfer);
  return cudaSuccess;
}
}  // namespace
namespace cuda_on_cpu {

void record_work(cudaStream_t stream) {
  const std::lock_guard lock(flight_mutex);
  const Work work{in_use(stream), std::this_thread::get_id(), ++positions};
  std::erase_if(unwaited, [&](const Work& w) { return w.stream == work.stream && w.thread == work.thread; });
  unwaited.push_back(work);
}
bool unwaited_work() {
  const std::lock_guard lock(flight_mutex);
  const auto own = [](const Work& work) { return work.thread == std::this_thread::get_id(); };
  return std::any_of(unwaited.begin(), unwaited.end(), own);
}

bool is_pinned(const void* data) {
  const std::lock_guard lock(flight_mutex);
  const auto next = pinned.upper_bound(data);
  if (next == pinned.begin()) return false;
  const auto& [begin, size] = *std::prev(next);
  return static_cast<const unsigned char*>(data) < static_cast<const unsigned char*>(begin) + size;
}
void transfer(void* to, const void* from, size_t bytes, bool to_host, cudaStream_t stream) {
  const auto* const first = static_cast<const unsigned char*>(from);
  auto* const host = static_cast<unsigned char*>(to_host ? to : const_cast<void*>(from));
  Transfer one{in_use(stream), 0, host, to_host, {first, first + bytes}};
  if (to_host)
    never_set(to, bytes);
  else
    std::memmove(to, from, bytes);
  const std::lock_guard lock(flight_mutex);
  one.position = positions;
  if (to_host)  // this copy overwrites earlier copies to the same memory
    std::erase_if(transfers, [&](const Transfer& t) {
      return t.to_host && t.pinned >= host && t.pinned + t.bytes.size() <= host + bytes;
    });
  transfers.push_back(std::move(one));
}

bool records(cudaStream_t stream) { return stream->recorded != nullptr; }
void keep_for_replay(cudaStream_t stream, std::function<cudaError_t()> work) {
  stream->recorded->work.push_back(std::move(work));
}

}  // namespace cuda_on_cpu

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (cuda_on_cpu::options.devices == 0) return cudaErrorNoDevice;
  *stream = new cudaStream;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const cudaError_t refused = refuse_while_recording(stream);
  return refused == cudaSuccess ? wait_for(stream, UINT64_MAX) : refused;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->recorded) return refuse_while_recording(stream);
  stream->recorded = std::make_unique<cudaGraph>();
  stream->spoiled = false;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::unique_ptr<cudaGraph> ended = std::move(stream->recorded);
  *graph = nullptr;
  if (!ended) return cudaErrorInvalidValue;
  if (stream->spoiled) return cudaErrorStreamCaptureInvalidated;
  *graph = new cudaGraph(*ended);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* replayable, cudaGraph_t graph, unsigned long long) {
  *replayable = new cudaGraphExec{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t replayable, cudaStream_t stream) {
  struct Replay {
    explicit Replay(cudaStream_t into) { replaying = into; }
    ~Replay() { replaying = nullptr; }
  } replay(stream);
  for (const auto& work : replayable->work)
    if (const cudaError_t result = work(); result != cudaSuccess) return result;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t replayable) {
  delete replayable;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

// ---- events: an event stands for all work queued in its stream before

struct cudaEvent {
  cudaStream_t stream = nullptr;
  uint64_t position = 0;
};
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new cudaEvent;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t refused = refuse_while_recording(stream); refused != cudaSuccess) return refused;
  const std::lock_guard lock(flight_mutex);
  *event = {stream, positions};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return wait_for(event->stream, event->position); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

// ---- pinned memory

cudaError_t cudaMallocHost(void** data, size_t bytes) {
  *data = cuda_on_cpu::pinned_allocations.next_fails() ? nullptr : std::malloc(bytes);
  if (!*data) return cudaErrorMemoryAllocation;
  const std::lock_guard lock(flight_mutex);
  pinned[*data] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  {
    const std::lock_guard lock(flight_mutex);
    const auto block = pinned.find(data);
    const auto* const begin = static_cast<unsigned char*>(data);
    const size_t bytes = block == pinned.end() ? 0 : block->second;
    const auto in_flight = [&](const Transfer& t) { return t.pinned >= begin && t.pinned < begin + bytes; };
    if (std::any_of(transfers.begin(), transfers.end(), in_flight)) return cudaErrorIllegalAddress;
    pinned.erase(data);
  }
  std::free(data);
  return cudaSuccess;
}
