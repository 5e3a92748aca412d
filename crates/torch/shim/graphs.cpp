// CUDA graphs: what a piece of work asks of the device, recorded once and asked again with one call.
//
// LibTorch's own class does the recording, because it knows the allocator's pools and the random numbers of a graph. Its functions
// are looked up by name, like all of CUDA's half.

#include "cuda_half.h"
#include "lowtide.h"

#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace {

using Pool = c10::MempoolId_t;
using lowtide::look_up;

// Work of other threads meanwhile, such as a sample of memory, is no reason to refuse.
constexpr auto kThreadLocal = static_cast<cudaStreamCaptureMode>(1);

// What the driver takes for one kernel of a graph: 1.03 GiB for 441,000 were seen on an H200.
constexpr size_t kBytesOfNode = 2560;

Pool pool_of(uint64_t number) { return {0, number}; }

at::Device cuda(int32_t device) { return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)); }

class Graph {
 public:
  Graph(int32_t device, Pool pool) : device_(device), pool_(pool) {
    look_up<void(void*, bool)>("_ZN2at4cuda9CUDAGraphC1Eb")(&object_, /*keep_graph=*/true);
  }

  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  ~Graph() {
    lowtide::quietly([&] { look_up<void(void*)>("_ZN2at4cuda9CUDAGraphD1Ev")(&object_); });
  }

  void begin() {
    auto source = at::globalContext().defaultGenerator(cuda(device_));
    generator_ = source.clone();
    try {
      look_up<void(void*, Pool, cudaStreamCaptureMode)>(
          "_ZN2at4cuda9CUDAGraph13capture_beginESt4pairIyyE21cudaStreamCaptureMode")(&object_, pool_, kThreadLocal);
    } catch (...) {
      put_back();
      throw;
    }
    lowtide::capturing = true;
  }

  void end() {
    lowtide::capturing = false;
    look_up<void(void*)>("_ZN2at4cuda9CUDAGraph11capture_endEv")(&object_);
    is_recorded_ = true;
  }

  // Hands the graph to the driver, where that has `room` for it.
  void hand_over(uint64_t room) {
    size_t nodes = 0;
    auto* recorded = look_up<cudaGraph_t(void*)>("_ZN2at4cuda9CUDAGraph14raw_cuda_graphEv")(&object_);
    TORCH_CHECK(look_up<int(cudaGraph_t, void*, size_t*)>("cudaGraphGetNodes")(recorded, nullptr, &nodes) == 0,
                "the driver did not say how large the graph is");
    TORCH_CHECK_WITH(OutOfMemoryError, nodes * kBytesOfNode <= room, "CUDA out of memory. Tried to allocate ", nodes * kBytesOfNode >> 20,
                     ".00 MiB for the ", nodes, " parts of a graph, and ", room >> 20, " MiB are left for the driver");
    look_up<void(void*)>("_ZN2at4cuda9CUDAGraph11instantiateEv")(&object_);
  }

  // Ends a recording that failed. What made it fail may have made it invalid, and then LibTorch's own ending throws half-way.
  void abandon() {
    lowtide::capturing = false;
    if (is_recorded_) return;
    try {
      look_up<void(void*)>("_ZN2at4cuda9CUDAGraph11capture_endEv")(&object_);
    } catch (...) {
      put_back();
    }
  }

  void replay() { look_up<void(void*)>("_ZN2at4cuda9CUDAGraph6replayEv")(&object_); }

 private:
  // Puts back the allocators and the generator as they were before.
  void put_back() noexcept {
    const auto index = static_cast<c10::DeviceIndex>(device_);
    lowtide::quietly([&] { lowtide::cuda_allocator()->endAllocateToPool(index, pool_); });
    lowtide::quietly([&] { lowtide::cuda_allocator()->releasePool(index, pool_); });
    lowtide::quietly([&] { at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool_); });
    lowtide::quietly([&] { at::getHostAllocator(at::kCUDA)->release_pool(pool_); });
    lowtide::quietly([&] {
      auto source = at::globalContext().defaultGenerator(cuda(device_));
      source.graphsafe_set_state(generator_);
    });
  }

  int32_t device_;
  Pool pool_;
  bool is_recorded_ = false;
  // The random numbers as they were before.
  at::Generator generator_;
  alignas(at::cuda::CUDAGraph) unsigned char object_[sizeof(at::cuda::CUDAGraph)];
};

}  // namespace

extern "C" {

// Lets this thread ask the device through a stream of its own from now on: the default one cannot be recorded.
Status lt_own_stream(int32_t device) noexcept {
  return lowtide::guarded([&] {
    const c10::impl::VirtualGuardImpl guard(at::kCUDA);
    const auto before = guard.getStream(cuda(device));
    if (before != guard.getDefaultStream(cuda(device))) return;
    before.synchronize();
    guard.exchangeStream(guard.getStreamFromGlobalPool(cuda(device)));
  });
}

// A number for memory that several graphs may use in turn.
Status lt_graph_pool(uint64_t* out) noexcept {
  return lowtide::guarded([&] { *out = look_up<Pool(bool)>("_ZN2at4cuda7MemPool17graph_pool_handleEb")(true).second; });
}

// From now on what this thread asks of the device is recorded and not done.
Status lt_graph_begin(int32_t device, uint64_t pool, void** out) noexcept {
  return lowtide::guarded([&] {
    auto graph = std::make_unique<Graph>(device, pool_of(pool));
    graph->begin();
    *out = graph.release();
  });
}

Status lt_graph_end(void* handle) noexcept {
  return lowtide::guarded([&] { static_cast<Graph*>(handle)->end(); });
}

Status lt_graph_hand_over(void* handle, uint64_t room) noexcept {
  return lowtide::guarded([&] { static_cast<Graph*>(handle)->hand_over(room); });
}

// Ends a recording that failed, and frees it.
void lt_graph_abandon(void* handle) noexcept {
  auto* graph = static_cast<Graph*>(handle);
  graph->abandon();
  delete graph;
}

Status lt_graph_replay(void* handle) noexcept {
  return lowtide::guarded([&] { static_cast<Graph*>(handle)->replay(); });
}

void lt_graph_free(void* handle) noexcept { delete static_cast<Graph*>(handle); }
}
