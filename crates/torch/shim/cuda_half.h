// CUDA's half of LibTorch, which is opened at run time: functions by their names, and the allocator.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <dlfcn.h>

namespace lowtide {

template <typename Function>
Function* look_up(const char* name) {
  auto* found = dlsym(RTLD_DEFAULT, name);
  TORCH_CHECK(found != nullptr, "the loaded CUDA libraries have no function ", name);
  return reinterpret_cast<Function*>(found);
}

// The same of one library, where there may be none.
template <typename Function>
bool bind(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(dlsym(library, name));
  return out != nullptr;
}

inline c10::cuda::CUDACachingAllocator::CUDAAllocator* cuda_allocator() {
  return static_cast<c10::cuda::CUDACachingAllocator::CUDAAllocator*>(c10::getDeviceAllocator(at::kCUDA));
}

}  // namespace lowtide
