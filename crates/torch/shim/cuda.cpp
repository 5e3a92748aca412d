// CUDA's caching allocator, reached without linking the CUDA half of LibTorch.
//
// libtorch_cuda.so is opened at run time, and only when a driver is there: the same binary runs where there is none. The
// allocator is then found through LibTorch's registry and driven through virtual functions alone; the few plain functions
// needed are looked up by name.

#include "cuda_half.h"
#include "lowtide.h"

#include <ATen/Context.h>
#include <dlfcn.h>
#include <torch/cuda.h>

#include <cstdio>
#include <fstream>


extern "C" {

struct CudaStats {
  int64_t allocated;
  int64_t allocated_peak;
  int64_t reserved;
  int64_t reserved_peak;
  int64_t retries;
  int64_t ooms;
};
}

namespace {

using lowtide::cuda_allocator;
using lowtide::look_up;

c10::DeviceAllocator* allocator() { return c10::getDeviceAllocator(at::kCUDA); }

c10::DeviceIndex index(int32_t device) { return static_cast<c10::DeviceIndex>(device); }

}  // namespace

extern "C" {

// 1 where the NVIDIA driver's library can be opened.
int32_t lt_cuda_driver_present() noexcept { return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL) != nullptr; }

// Must run before the engine is first asked about CUDA: it remembers the answer.
Status lt_cuda_load() noexcept {
  return lowtide::guarded([&] {
    if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      TORCH_CHECK(false, dlerror());
    }
  });
}

Status lt_cuda_start(int32_t* count) noexcept {
  return lowtide::guarded([&] {
    // First, because it says what is wrong; counting devices only warns and answers 0.
    at::globalContext().lazyInitDevice(at::kCUDA);
    *count = static_cast<int32_t>(torch::cuda::device_count());
  });
}

Status lt_cuda_memory(int32_t device, uint64_t* free, uint64_t* total) noexcept {
  return lowtide::guarded([&] {
    const auto info = allocator()->getMemoryInfo(index(device));
    *free = info.first;
    *total = info.second;
  });
}

Status lt_cuda_stats(int32_t device, CudaStats* out) noexcept {
  return lowtide::guarded([&] {
    const auto stats = allocator()->getDeviceStats(index(device));
    const auto& allocated = stats.allocated_bytes[0];
    const auto& reserved = stats.reserved_bytes[0];
    *out = {allocated.current, allocated.peak, reserved.current, reserved.peak, stats.num_alloc_retries, stats.num_ooms};
  });
}

Status lt_cuda_reset_peaks(int32_t device) noexcept {
  return lowtide::guarded([&] { allocator()->resetPeakStats(index(device)); });
}

Status lt_cuda_empty_cache() noexcept {
  return lowtide::guarded([&] { allocator()->emptyCache(); });
}

Status lt_cuda_set_fraction(int32_t device, double fraction) noexcept {
  return lowtide::guarded([&] {
    cuda_allocator()->setMemoryFraction(fraction, index(device));
  });
}

// Keeps the last `max_entries` allocator events, without stacks. 0 turns it off.
Status lt_cuda_record_history(uint64_t max_entries) noexcept {
  return lowtide::guarded([&] {
    cuda_allocator()->recordHistory(max_entries > 0, nullptr, max_entries,
                                    c10::CachingDeviceAllocator::RecordContext::NEVER,
                                    /*clearHistory=*/max_entries == 0, {});
  });
}

// The pickle that PyTorch's memory viewer reads.
Status lt_cuda_snapshot(const char* path) noexcept {
  return lowtide::guarded([&] {
    const auto pickled = look_up<std::string()>("_ZN5torch4cuda24_memory_snapshot_pickledB5cxx11Ev")();
    std::ofstream file(path, std::ios::binary);
    file.write(pickled.data(), static_cast<std::streamsize>(pickled.size()));
    file.close();
    TORCH_CHECK(file.good(), "the snapshot could not be written to ", path);
  });
}

Status lt_cuda_capability(int32_t device, int32_t* major, int32_t* minor) noexcept {
  return lowtide::guarded([&] {
    // cudaDevAttrComputeCapabilityMajor and ...Minor.
    auto* attribute = look_up<int(int*, int, int)>("cudaDeviceGetAttribute");
    TORCH_CHECK(attribute(major, 75, device) == 0 && attribute(minor, 76, device) == 0,
                "the driver did not answer for CUDA device ", device);
  });
}

Status lt_cuda_name(int32_t device, char* out, int32_t length) noexcept {
  return lowtide::guarded([&] {
    int handle = 0;
    TORCH_CHECK(look_up<int(int*, int)>("cuDeviceGet")(&handle, device) == 0 &&
                    look_up<int(char*, int, int)>("cuDeviceGetName")(out, length, handle) == 0,
                "the driver did not answer for CUDA device ", device);
  });
}

// The number that no other card has: 16 bytes.
Status lt_cuda_uuid(int32_t device, uint8_t* out) noexcept {
  return lowtide::guarded([&] {
    int handle = 0;
    TORCH_CHECK(look_up<int(int*, int)>("cuDeviceGet")(&handle, device) == 0 &&
                    look_up<int(uint8_t*, int)>("cuDeviceGetUuid_v2")(out, handle) == 0,
                "the driver did not answer for CUDA device ", device);
  });
}
}
