// LibTorch's profiler, and spans by which what it writes can be told apart.

#include "lowtide.h"
#include "nvrtc.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <map>
#include <mutex>

namespace {

// Empty kernels: what is recorded in a graph has no other trace of the span it was asked for in.
lowtide::Program mark_kernels("extern \"C\" __global__ void BEGINS() {}\nextern \"C\" __global__ void ENDS() {}\n");

struct Mark {
  at::Device device;
  void* begins;
  void* ends;

  void set(void* kernel) const { lowtide::launch(kernel, device, 1, 1, nullptr); }
};

// Marks by the names of spans.
struct Marks {
  std::mutex mutex;
  std::map<std::string, Mark> all;

  std::optional<Mark> of(const char* name) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = all.find(name);
    return found == all.end() ? std::nullopt : std::optional<Mark>(found->second);
  }
};

Marks& marks() {
  static Marks known;
  return known;
}

struct Span {
  std::optional<at::RecordFunction> noted;
  std::optional<Mark> mark;
};

}  // namespace

extern "C" {

// From now on kernels of these names stand where a span begins and ends, where it is recorded in a graph of this device.
Status lt_mark_spans(int32_t device, const char* span, const char* begins, const char* ends) noexcept {
  return lowtide::guarded([&] {
    const at::Device place(at::kCUDA, static_cast<c10::DeviceIndex>(device));
    const auto instance = std::string("#define BEGINS ") + begins + "\n#define ENDS " + ends + "\n";
    const Mark mark{place, mark_kernels.kernel(place, instance, begins), mark_kernels.kernel(place, instance, ends)};
    TORCH_CHECK(mark.begins != nullptr && mark.ends != nullptr, "the device has no kernels that mark spans");
    auto& known = marks();
    const std::lock_guard<std::mutex> lock(known.mutex);
    known.all.insert_or_assign(span, mark);
  });
}

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
  Span* span = nullptr;
  lowtide::quietly([&] {
    auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
    auto mark = lowtide::capturing ? marks().of(name) : std::nullopt;
    if (!callbacks.has_value() && !mark.has_value()) return;
    span = new Span{std::nullopt, mark};
    if (callbacks.has_value()) span->noted.emplace(std::move(*callbacks)).before(name);
    if (mark.has_value()) mark->set(mark->begins);
  });
  return span;
}

void lt_span_end(void* span) noexcept {
  const std::unique_ptr<Span> ended(static_cast<Span*>(span));
  if (ended == nullptr || !ended->mark.has_value() || !lowtide::capturing) return;
  lowtide::quietly([&] { ended->mark->set(ended->mark->ends); });
}
}
