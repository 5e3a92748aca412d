// LibTorch's profiler, and spans by which what it writes can be told apart.

#include "lowtide.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>

extern "C" {

// Notes from now on what this thread asks for, backward included, and on a GPU what that does.
Status lt_profile_begin(int32_t with_cuda) noexcept {
  return lowtide::guarded([&] {
    using torch::profiler::impl::ActivityType;
    const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
    std::set<ActivityType> activities{ActivityType::CPU};
    if (with_cuda != 0) activities.insert(ActivityType::CUDA);
    torch::autograd::profiler::prepareProfiler(config, activities);
    torch::autograd::profiler::enableProfiler(config, activities);
  });
}

// Ends it; writes what was noted as a Chrome trace, or nothing where `path` is null.
Status lt_profile_end(const char* path) noexcept {
  return lowtide::guarded([&] {
    const auto result = torch::autograd::profiler::disableProfiler();
    if (path != nullptr) result->save(path);
  });
}

// Something with a name begins; null where nobody takes note.
void* lt_span_begin(const char* name) noexcept {
  at::RecordFunction* span = nullptr;
  lowtide::quietly([&] {
    auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
    if (!callbacks.has_value()) return;
    span = new at::RecordFunction(std::move(*callbacks));
    span->before(name);
  });
  return span;
}

void lt_span_end(void* span) noexcept {
  lowtide::quietly([&] { delete static_cast<at::RecordFunction*>(span); });
}
}
