// Tensors from card to card: NCCL, which LibTorch brings, by its own C functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <chrono>
#include <cstdint>

namespace lowtide {

// What ranks find each other by.
using NcclId = std::array<char, 128>;

// One for all ranks; throws where there is no NCCL.
NcclId new_nccl_id();

// This rank's end of what connects all cards. A rank that does not take part is waited for up to the timeout; whatever fails leaves
// nothing that could be used again.
class Nccl {
 public:
  Nccl(const NcclId& id, int rank, int world, at::Device device, std::chrono::milliseconds timeout);
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  // From now on a rank is waited for this long.
  void wait_up_to(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  // Whether it takes the tensor: contiguous, on its card, and of a kind that can be added up.
  bool takes(const at::Tensor& tensor) const;

  // Both return when the tensor is there.
  void sum(const at::Tensor& tensor);
  void broadcast(const at::Tensor& tensor, int root);

 private:
  void settle(int result, const char* what, std::chrono::steady_clock::time_point until);
  void arrive(const char* what, std::chrono::steady_clock::time_point until);

  void* connection_ = nullptr;
  at::Device device_;
  std::chrono::milliseconds timeout_;
};

}  // namespace lowtide
