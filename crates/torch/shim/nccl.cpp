// NCCL by its own C functions, without waiting longer than is allowed.
//
// LibTorch's group for NCCL has a watchdog that ends the process; here a rank that cannot go on says so, and who fell silent is found
// out by name. So a connection never blocks: what is not done yet is asked for again until the time is up, and then aborted, which ends
// its kernels too.

#include "nccl.h"

#include "cuda_half.h"
#include "lowtide.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <climits>
#include <optional>
#include <thread>

namespace lowtide {
namespace {

using Clock = std::chrono::steady_clock;

// ncclResult_t.
constexpr int kSuccess = 0;
constexpr int kInProgress = 7;
// ncclDataType_t and ncclRedOp_t.
constexpr int kUint8 = 1;
constexpr int kSum = 0;

// ncclConfig_t as of 2.18: later versions take it by its size.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;
  int cluster_size = INT_MIN;
  int least_blocks = INT_MIN;
  int most_blocks = INT_MIN;
  const char* network = nullptr;
  int shares_when_split = INT_MIN;
};

struct NcclFunctions {
  int (*new_id)(NcclId*);
  int (*join)(void**, int, NcclId, int, Config*);
  int (*all_reduce)(const void*, void*, size_t, int, int, void*, void*);
  int (*broadcast)(const void*, void*, size_t, int, int, void*, void*);
  int (*state)(void*, int*);
  int (*abort)(void*);
  const char* (*words)(int);
  const char* (*last_words)(void*);
};

std::optional<NcclFunctions> find_nccl() {
  // LibTorch has loaded it, or it lies where libraries are looked for.
  void* library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  NcclFunctions found{};
  const bool all = bind(library, "ncclGetUniqueId", found.new_id) && bind(library, "ncclCommInitRankConfig", found.join) &&
                   bind(library, "ncclAllReduce", found.all_reduce) && bind(library, "ncclBroadcast", found.broadcast) &&
                   bind(library, "ncclCommGetAsyncError", found.state) && bind(library, "ncclCommAbort", found.abort) &&
                   bind(library, "ncclGetErrorString", found.words) && bind(library, "ncclGetLastError", found.last_words);
  return all ? std::optional<NcclFunctions>(found) : std::nullopt;
}

const NcclFunctions& nccl() {
  static const std::optional<NcclFunctions> found = find_nccl();
  TORCH_CHECK(found.has_value(), "there is no NCCL (libnccl.so.2) of 2.18 or later");
  return *found;
}

// -1 where it cannot be added up.
int kind_of(at::ScalarType kind) {
  switch (kind) {
    case at::kLong: return 4;
    case at::kHalf: return 6;
    case at::kFloat: return 7;
    case at::kDouble: return 8;
    case at::kBFloat16: return 9;
    default: return -1;
  }
}

// Not at once: most of what is waited for takes less than a sleep.
void pause(Clock::time_point since) {
  if (Clock::now() - since < std::chrono::milliseconds(2)) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

c10::Stream stream_of(at::Device device) { return c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device); }

}  // namespace

NcclId new_nccl_id() {
  NcclId id{};
  const int result = nccl().new_id(&id);
  TORCH_CHECK(result == kSuccess, "NCCL cannot be used: ", nccl().words(result));
  return id;
}

Nccl::Nccl(const NcclId& id, int rank, int world, at::Device device, std::chrono::milliseconds timeout)
    : device_(device), timeout_(timeout) {
  const c10::DeviceGuard entered(device_);
  Config config;
  try {
    const auto until = Clock::now() + timeout_;
    settle(nccl().join(&connection_, world, id, rank, &config), "connecting by NCCL", until);
  } catch (...) {
    if (connection_ != nullptr) nccl().abort(connection_);
    throw;
  }
}

Nccl::~Nccl() {
  quietly([&] { nccl().abort(connection_); });
}

bool Nccl::takes(const at::Tensor& tensor) const {
  return tensor.device() == device_ && tensor.is_contiguous() && kind_of(tensor.scalar_type()) >= 0;
}

void Nccl::sum(const at::Tensor& tensor) {
  const c10::DeviceGuard entered(device_);
  const auto until = Clock::now() + timeout_;
  auto* numbers = tensor.data_ptr();
  const int result = nccl().all_reduce(numbers, numbers, static_cast<size_t>(tensor.numel()), kind_of(tensor.scalar_type()), kSum,
                                            connection_, stream_of(device_).native_handle());
  settle(result, "adding up by NCCL", until);
  arrive("adding up by NCCL", until);
}

void Nccl::broadcast(const at::Tensor& tensor, int root) {
  const c10::DeviceGuard entered(device_);
  const auto until = Clock::now() + timeout_;
  auto* numbers = tensor.data_ptr();
  const int result = nccl().broadcast(numbers, numbers, tensor.nbytes(), kUint8, root, connection_, stream_of(device_).native_handle());
  settle(result, "sending by NCCL", until);
  arrive("sending by NCCL", until);
}

// Until NCCL has taken what was asked of it.
void Nccl::settle(int result, const char* what, Clock::time_point until) {
  const auto since = Clock::now();
  while (result == kInProgress) {
    TORCH_CHECK(Clock::now() < until, what, " took longer than ", timeout_.count(), " ms");
    pause(since);
    const int asked = nccl().state(connection_, &result);
    if (asked != kSuccess) result = asked;
  }
  TORCH_CHECK(result == kSuccess, what, " failed: ", nccl().words(result), ". ", nccl().last_words(nullptr));
}

// Until the card is done with it.
void Nccl::arrive(const char* what, Clock::time_point until) {
  c10::Event done(at::kCUDA);
  done.record(stream_of(device_));
  const auto since = Clock::now();
  while (!done.query()) {
    TORCH_CHECK(Clock::now() < until, what, " took longer than ", timeout_.count(), " ms");
    pause(since);
    int state = kSuccess;
    nccl().state(connection_, &state);
    settle(state == kInProgress ? kSuccess : state, what, until);
  }
}

}  // namespace lowtide
