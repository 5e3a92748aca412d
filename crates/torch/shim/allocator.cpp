// The CPU allocator: LibTorch's own memory source with a line drawn under it.
//
// It counts every tensor byte, refuses what would pass the line with the engine's own out-of-memory error, records
// allocations and frees when asked, and fails chosen allocations for tests. A header before the data holds the size,
// because LibTorch frees with the data pointer alone and asserts that data and context are the same pointer. Memory comes
// from malloc and is aligned here: posix_memalign, which LibTorch's own allocator uses, takes longer than our counting.
// What does not pass through here: scratch memory of MKL and oneDNN, and pinned memory.

#include "lowtide.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <limits>
#include <mutex>

extern "C" {

struct HostCounts {
  int64_t allocated;
  int64_t peak;
  uint64_t allocations;
  uint64_t refusals;
};

struct HostRefusal {
  uint64_t requested;
  uint64_t allocated;
  int64_t line;  // negative: no line
  int32_t injected;
};

struct HostEntry {
  uint64_t serial;
  uint64_t bytes;
  int64_t nanoseconds;
  int32_t action;  // 0: allocate, 1: free, 2: refuse
};
}

namespace {

constexpr size_t kAlignment = 64;
constexpr int64_t kNoLine = std::numeric_limits<int64_t>::max();

struct Header {
  void* base;
  uint64_t bytes;
  uint64_t serial;
};

// Room for the header, and for moving the data up to the next multiple of the alignment.
constexpr size_t kExtra = sizeof(Header) + kAlignment - 1;

Header* header_of(void* data) { return static_cast<Header*>(data) - 1; }

// Counters that every allocation touches, on a cache line of their own.
struct alignas(64) Counters {
  std::atomic<int64_t> allocated{0};
  std::atomic<int64_t> peak{0};
  std::atomic<uint64_t> serial{0};
};

// Read by every allocation, written rarely.
struct alignas(64) Controls {
  std::atomic<int64_t> line{kNoLine};
  std::atomic<bool> recording{false};
  std::atomic<bool> injecting{false};
};

struct Injection {
  std::mutex mutex;
  uint64_t skip = 0;   // allocations still to let through
  uint64_t times = 0;  // allocations still to refuse after that
};

Counters counters;
Controls controls;
Injection injection;
std::atomic<uint64_t> refusals{0};
std::mutex refusal_mutex;
HostRefusal last_refusal{};
std::mutex recording_mutex;
std::vector<HostEntry> recording;

int64_t now() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

// Called where memory is freed, too, which may not throw: a recording that has no room for more ends.
void note(uint64_t serial, uint64_t bytes, int32_t action) noexcept {
  std::lock_guard<std::mutex> lock(recording_mutex);
  if (!controls.recording.load(std::memory_order_relaxed)) return;
  try {
    recording.push_back({serial, bytes, now(), action});
  } catch (const std::bad_alloc&) {
    controls.recording.store(false);
  }
}

// The number format of PyTorch's CUDA allocator.
std::string format_size(uint64_t bytes) {
  char text[64];
  if (bytes <= 1024) {
    snprintf(text, sizeof text, "%llu bytes", static_cast<unsigned long long>(bytes));
  } else if (bytes <= (1ull << 20)) {
    snprintf(text, sizeof text, "%.2f KiB", bytes / 1024.0);
  } else if (bytes <= (1ull << 30)) {
    snprintf(text, sizeof text, "%.2f MiB", bytes / 1048576.0);
  } else {
    snprintf(text, sizeof text, "%.2f GiB", bytes / 1073741824.0);
  }
  return text;
}

[[noreturn]] void refuse(uint64_t requested, bool injected) {
  const uint64_t allocated = static_cast<uint64_t>(counters.allocated.load());
  const int64_t line = controls.line.load();
  refusals.fetch_add(1);
  if (controls.recording.load(std::memory_order_relaxed)) note(0, requested, 2);
  {
    std::lock_guard<std::mutex> lock(refusal_mutex);
    last_refusal = {requested, allocated, line == kNoLine ? -1 : line, injected};
  }
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::string text = "CPU out of memory. Tried to allocate " + format_size(requested);
  text += ". CPU 0 has a total capacity of " + format_size(page * static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)));
  text += " of which " + format_size(page * static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES))) + " is free. ";
  if (line != kNoLine) text += format_size(static_cast<uint64_t>(line)) + " allowed; ";
  text += "Of the allocated memory " + format_size(allocated) +
          " is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.";
  if (injected) text += " This failure was injected for a test.";
  TORCH_CHECK_WITH(OutOfMemoryError, false, text);
}

bool chosen_to_fail() {
  std::lock_guard<std::mutex> lock(injection.mutex);
  if (injection.skip > 0) {
    injection.skip--;
    return false;
  }
  if (injection.times == 0) return false;
  injection.times--;
  if (injection.times == 0) controls.injecting.store(false);
  return true;
}

// Takes the bytes out of the room below the line. A compare-and-swap loop, so that a request that is refused never makes
// a smaller one on another thread fail.
void reserve(uint64_t bytes) {
  int64_t current = counters.allocated.load(std::memory_order_relaxed);
  int64_t next;
  do {
    const int64_t line = controls.line.load(std::memory_order_relaxed);
    if (bytes > static_cast<uint64_t>(kNoLine) - static_cast<uint64_t>(current) ||
        current + static_cast<int64_t>(bytes) > line) {
      refuse(bytes, false);
    }
    next = current + static_cast<int64_t>(bytes);
  } while (!counters.allocated.compare_exchange_weak(current, next, std::memory_order_relaxed));
  int64_t peak = counters.peak.load(std::memory_order_relaxed);
  while (next > peak && !counters.peak.compare_exchange_weak(peak, next, std::memory_order_relaxed)) {
  }
}

void release(void* data) {
  if (data == nullptr) return;
  const Header header = *header_of(data);
  counters.allocated.fetch_sub(static_cast<int64_t>(header.bytes), std::memory_order_relaxed);
  if (C10_UNLIKELY(controls.recording.load(std::memory_order_relaxed))) note(header.serial, header.bytes, 1);
  free(header.base);
}

struct LineAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, at::Device(at::kCPU)};
    if (C10_UNLIKELY(controls.injecting.load(std::memory_order_relaxed)) && chosen_to_fail()) refuse(bytes, true);
    reserve(bytes);
    void* base = malloc(bytes + kExtra);
    if (base == nullptr) {
      // The machine itself has no more: the same kind of error as for the line.
      counters.allocated.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
      refuse(bytes, false);
    }
    const auto start = reinterpret_cast<uintptr_t>(base) + kExtra;
    void* data = reinterpret_cast<void*>(start - start % kAlignment);
    const uint64_t serial = counters.serial.fetch_add(1, std::memory_order_relaxed) + 1;
    *header_of(data) = {base, bytes, serial};
    if (C10_UNLIKELY(controls.recording.load(std::memory_order_relaxed))) note(serial, bytes, 0);
    return {data, data, &release, at::Device(at::kCPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* dest, const void* src, std::size_t count) const override { default_copy_data(dest, src, count); }
};

LineAllocator line_allocator;

}  // namespace

extern "C" {

void lt_host_install() noexcept {
  // Priority 100: above the default allocator's 0, so that a later registration of it does not take our place.
  c10::SetCPUAllocator(&line_allocator, 100);
}

// Puts LibTorch's default allocator back (for benches that compare the two).
void lt_host_uninstall() noexcept {
  c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), 100);
}

int32_t lt_host_installed() noexcept { return c10::GetCPUAllocator() == &line_allocator; }

void lt_host_counts(HostCounts* out) noexcept {
  *out = {counters.allocated.load(), counters.peak.load(), counters.serial.load(), refusals.load()};
}

void lt_host_reset_peak() noexcept { counters.peak.store(counters.allocated.load()); }

// Makes the C library give large blocks back to the system as soon as they are freed. Without a fixed threshold it
// raises its own with every large block that is freed, and keeps the next ones.
void lt_host_keep_little() noexcept {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 256 * 1024);
  mallopt(M_TRIM_THRESHOLD, 1024 * 1024);
  mallopt(M_ARENA_MAX, 2);
#endif
}

// Gives back to the system what the C library holds and nobody uses.
void lt_host_trim() noexcept {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

// A negative value takes the line away.
void lt_host_set_line(int64_t bytes) noexcept { controls.line.store(bytes < 0 ? kNoLine : bytes); }

// Lets `skip` allocations through, then refuses `times` of them. `times` of 0 turns it off.
void lt_host_inject(uint64_t skip, uint64_t times) noexcept {
  std::lock_guard<std::mutex> lock(injection.mutex);
  injection.skip = skip;
  injection.times = times;
  controls.injecting.store(times > 0);
}

int32_t lt_host_last_refusal(HostRefusal* out) noexcept {
  std::lock_guard<std::mutex> lock(refusal_mutex);
  *out = last_refusal;
  return refusals.load() > 0;
}

void lt_host_record_start() noexcept {
  std::lock_guard<std::mutex> lock(recording_mutex);
  recording.clear();
  controls.recording.store(true);
}

// Stops recording and says how many entries there are; lt_host_record_take copies them out.
size_t lt_host_record_stop() noexcept {
  std::lock_guard<std::mutex> lock(recording_mutex);
  controls.recording.store(false);
  return recording.size();
}

void lt_host_record_take(HostEntry* out, size_t count) noexcept {
  std::lock_guard<std::mutex> lock(recording_mutex);
  std::memcpy(out, recording.data(), std::min(count, recording.size()) * sizeof(HostEntry));
  std::vector<HostEntry>().swap(recording);
}

// One allocate/free pair through the allocator in force: what the benches time.
Status lt_host_touch_pair(size_t bytes) noexcept {
  return lowtide::guarded([&] { c10::GetCPUAllocator()->allocate(bytes); });
}

void lt_text_free(char* text) noexcept { free(text); }
}
