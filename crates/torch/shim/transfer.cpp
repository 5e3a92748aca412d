// Between host and device without waiting: what goes over lies in pinned memory, so the copy is one more thing in the stream,
// or goes on a stream of its own.

#include "lowtide.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>

namespace {

// More than this is not pinned: torch keeps pinned memory for the next time, and it is the host's.
constexpr size_t kMostPinned = size_t(64) << 20;

// The stream on which a device's batches travel beside its work.
c10::Stream travelling(at::Device place) {
  static std::mutex lock;
  static std::map<c10::DeviceIndex, c10::Stream> streams;
  const std::lock_guard<std::mutex> held(lock);
  auto at = streams.find(place.index());
  if (at == streams.end()) {
    const c10::impl::VirtualGuardImpl guard(at::kCUDA);
    auto stream = guard.getStreamFromGlobalPool(place);
    // The pool hands its streams out in turn: this one may be the thread's own.
    if (stream == guard.getStream(place)) stream = guard.getStreamFromGlobalPool(place);
    at = streams.emplace(place.index(), stream).first;
  }
  return at->second;
}

// `tensor` on a device, copied beside the work that the device has still to do. Its memory is the other stream's, so that none of
// that work is at it; whatever is asked of the device from now on waits for the copy.
at::Tensor beside(const at::Tensor& tensor, at::Device place) {
  const auto work = c10::impl::VirtualGuardImpl(at::kCUDA).getStream(place);
  const auto stream = travelling(place);
  at::Tensor there;
  c10::Event arrived(at::kCUDA);
  {
    const c10::StreamGuard entered(stream);
    there = tensor.to(place, /*non_blocking=*/true);
    arrived.record(stream);
  }
  arrived.block(work);
  there.record_stream(work);
  return there;
}

// A number on its way to the host.
struct Later {
  at::Tensor value;
  std::optional<c10::Event> arrived;
};

}  // namespace

extern "C" {

// `tensor` on a CUDA device. The host goes on before it has arrived there; `is_ahead`: it goes beside the work asked for before.
Status lt_upload(at::Tensor* tensor, int32_t device, int32_t is_ahead, at::Tensor** out) noexcept {
  return lowtide::guarded([&] {
    const at::Device place(at::kCUDA, static_cast<c10::DeviceIndex>(device));
    if (!tensor->is_cpu() || tensor->nbytes() > kMostPinned) {
      *out = new at::Tensor(tensor->to(place));
      return;
    }
    const auto pinned = tensor->pin_memory();
    *out = new at::Tensor(is_ahead ? beside(pinned, place) : pinned.to(place, /*non_blocking=*/true));
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
