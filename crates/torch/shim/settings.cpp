// Process-wide engine settings: generators, autocast, determinism.

#include "lowtide.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/util/Logging.h>

namespace {

at::Generator generator(int32_t device) {
  if (device < 0) return at::detail::getDefaultCPUGenerator();
  return at::globalContext().defaultGenerator(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
}

}  // namespace

extern "C" {

// `device` is -1 for the CPU, else the index of a CUDA device.
Status lt_rng_get(int32_t device, at::Tensor** out) noexcept {
  return lowtide::guarded([&] {
    auto source = generator(device);
    std::lock_guard<std::mutex> lock(source.mutex());
    *out = new at::Tensor(source.get_state());
  });
}

Status lt_rng_set(int32_t device, at::Tensor* state) noexcept {
  return lowtide::guarded([&] {
    auto source = generator(device);
    std::lock_guard<std::mutex> lock(source.mutex());
    source.set_state(*state);
  });
}

Status lt_rng_seed(int32_t device, uint64_t seed) noexcept {
  return lowtide::guarded([&] {
    auto source = generator(device);
    std::lock_guard<std::mutex> lock(source.mutex());
    source.set_current_seed(seed);
  });
}

// Errors of the engine carry no C++ stack: finding its names costs a tenth of a second for each error, and errors are
// values here.
void lt_leave_out_stacks() noexcept {
  lowtide::quietly([] { c10::SetStackTraceFetcher(std::function<std::string()>([] { return std::string(); })); });
}

struct AutocastSetting {
  int32_t enabled;
  int32_t dtype;
};

// Sets autocast for one kind of device on this thread; `before` is what was set before.
Status lt_autocast_enter(int32_t cuda, int32_t enabled, int32_t dtype, AutocastSetting* before) noexcept {
  return lowtide::guarded([&] {
    const auto type = cuda ? at::kCUDA : at::kCPU;
    *before = {at::autocast::is_autocast_enabled(type), static_cast<int32_t>(at::autocast::get_autocast_dtype(type))};
    at::autocast::set_autocast_enabled(type, enabled != 0);
    at::autocast::set_autocast_dtype(type, static_cast<at::ScalarType>(dtype));
    at::autocast::increment_nesting();
  });
}

void lt_autocast_leave(int32_t cuda, AutocastSetting before) noexcept {
  lowtide::quietly([&] {
    const auto type = cuda ? at::kCUDA : at::kCPU;
    at::autocast::set_autocast_enabled(type, before.enabled != 0);
    at::autocast::set_autocast_dtype(type, static_cast<at::ScalarType>(before.dtype));
    // The cache of narrowed weights lives until the outermost region ends.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  });
}

Status lt_set_deterministic(int32_t on) noexcept {
  return lowtide::guarded([&] {
    auto& context = at::globalContext();
    context.setDeterministicAlgorithms(on != 0, /*warn_only=*/false);
    // Filling fresh memory is for finding reads of it; it would cost a pass over every tensor.
    context.setDeterministicFillUninitializedMemory(false);
    context.setDeterministicCuDNN(on != 0);
    if (on) context.setBenchmarkCuDNN(false);
  });
}

// "highest" keeps fp32 products exact; "high" lets the GPU use tf32.
Status lt_set_matmul_precision(const char* precision) noexcept {
  return lowtide::guarded([&] { at::globalContext().setFloat32MatmulPrecision(precision); });
}
}
