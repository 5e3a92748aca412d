// CUDA kernels that are compiled at run time for the card they run on.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <mutex>
#include <string>

namespace lowtide {

// A source of kernels. It may use Bf16, Half, Float and Pack, which come before it, and what `instance` declares: the kind of
// numbers, for one. Each instance is compiled once for each device that asks for a kernel of it; all of them at once would take
// the compiler seconds.
class Program {
 public:
  explicit Program(const char* source) : source_(source) {}

  // A kernel by its C name, or null where there is none: not on a GPU, no run-time compiler, no such name.
  void* kernel(const at::Device& device, const std::string& instance, const std::string& name);

  // Why a device has no kernels; empty where it has them.
  std::string problem(int device, const std::string& instance);

 private:
  struct Compiled {
    void* module = nullptr;
    std::string problem;
    std::map<std::string, void*> kernels;
  };

  Compiled compile(int device, const std::string& instance) const;
  Compiled& on(int device, const std::string& instance);

  const char* source_;
  std::mutex mutex_;
  std::map<std::pair<int, std::string>, Compiled> compiled_;
};

// Starts a kernel on the device's current stream.
void launch(void* kernel, const at::Device& device, int64_t blocks, int threads, void** arguments);

int multiprocessors(const at::Device& device);

// What the cache that all multiprocessors share takes.
int64_t cache_bytes(const at::Device& device);

// Blocks of so many threads that a multiprocessor has room for at once.
int64_t resident_blocks(void* kernel, const at::Device& device, int threads);

// What kernels call a kind of number, or null for one that they do not know.
const char* name_of(at::ScalarType kind);

}  // namespace lowtide
