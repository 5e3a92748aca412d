// Between host and device without waiting: what goes over lies in pinned memory, so the copy is one more thing in the stream.

#include "lowtide.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace {

// More than this is not pinned: torch keeps pinned memory for the next time, and it is the host's.
constexpr size_t kMostPinned = size_t(64) << 20;

// A number on its way to the host.
struct Later {
  at::Tensor value;
  std::optional<c10::Event> arrived;
};

}  // namespace

extern "C" {

// `tensor` on a CUDA device. The host goes on before it has arrived there.
Status lt_upload(at::Tensor* tensor, int32_t device, at::Tensor** out) noexcept {
  return lowtide::guarded([&] {
    const at::Device place(at::kCUDA, static_cast<c10::DeviceIndex>(device));
    const bool is_pinned = tensor->is_cpu() && tensor->nbytes() <= kMostPinned;
    *out = new at::Tensor(is_pinned ? tensor->pin_memory().to(place, /*non_blocking=*/true) : tensor->to(place));
  });
}

// Begins to read the one number of `tensor`. What is asked of the device later does not have to be done for it to arrive.
Status lt_read_begin(at::Tensor* tensor, void** out) noexcept {
  return lowtide::guarded([&] {
    auto later = std::make_unique<Later>();
    const auto value = tensor->detach();
    if (value.is_cuda()) {
      later->value = at::empty_like(value, value.options().device(at::kCPU).pinned_memory(true));
      later->value.copy_(value, /*non_blocking=*/true);
      later->arrived.emplace(at::kCUDA);
      later->arrived->record(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(value.device()));
    } else {
      later->value = value;
    }
    *out = later.release();
  });
}

// Waits for the number.
Status lt_read_end(void* handle, double* out) noexcept {
  return lowtide::guarded([&] {
    const auto& later = *static_cast<Later*>(handle);
    if (later.arrived) later.arrived->synchronize();
    *out = later.value.item<double>();
  });
}

void lt_read_free(void* handle) noexcept { delete static_cast<Later*>(handle); }
}
