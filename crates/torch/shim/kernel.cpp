// The cross-entropy kernel.
//
// A row is read twice and written once: the logits of a large vocabulary are the largest tensor of a language model, and
// LibTorch's own path widens them to fp32 and passes over them about eight times.

#include "kernel.h"

#include "lowtide.h"
#include "nvrtc.h"

namespace {

constexpr int kThreads = 512;

lowtide::Program loss_kernels(R"(
// The largest value met and the sum of exp(value - largest), of two sets put together.
__device__ void merge(float& top, float& sum, float other_top, float other_sum) {
  float high = fmaxf(top, other_top);
  if (high == -INFINITY) return;
  sum = sum * __expf(top - high) + other_sum * __expf(other_top - high);
  top = high;
}

__device__ void merge_block(float& top, float& sum) {
  __shared__ float tops[32], sums[32];
  for (int lane = 16; lane > 0; lane >>= 1) {
    float other_top = __shfl_xor_sync(0xffffffffu, top, lane);
    float other_sum = __shfl_xor_sync(0xffffffffu, sum, lane);
    merge(top, sum, other_top, other_sum);
  }
  int warp = threadIdx.x >> 5;
  if ((threadIdx.x & 31) == 0) { tops[warp] = top; sums[warp] = sum; }
  __syncthreads();
  top = -INFINITY;
  sum = 0.f;
  for (int other = 0; other < blockDim.x >> 5; other++) merge(top, sum, tops[other], sums[other]);
}

// `vocabulary` is a multiple of the pack, and rows start on 16 bytes.
extern "C" __global__ void loss(T* logits, const long long* targets, float* losses, long long vocabulary, float gain) {
  T* row = logits + (long long)blockIdx.x * vocabulary;
  Pack<T>* packs = reinterpret_cast<Pack<T>*>(row);
  const long long count = vocabulary / Pack<T>::kCount;
  float top = -INFINITY, sum = 0.f;
  for (long long at = threadIdx.x; at < count; at += blockDim.x) {
    Pack<T> pack = packs[at];
    float high = -INFINITY;
    for (int k = 0; k < Pack<T>::kCount; k++) high = fmaxf(high, pack.item[k].wide());
    float part = 0.f;
    for (int k = 0; k < Pack<T>::kCount; k++) part += __expf(pack.item[k].wide() - high);
    if (high != -INFINITY) merge(top, sum, high, part);
  }
  merge_block(top, sum);
  const float log_sum = top + logf(sum);
  const long long target = targets[blockIdx.x];
  const bool ignored = target == -100;
  const bool outside = !ignored && (target < 0 || target >= vocabulary);
  if (threadIdx.x == 0) {
    losses[blockIdx.x] = ignored ? 0.f : outside ? NAN : log_sum - row[target].wide();
  }
  if (gain == 0.f) return;
  __syncthreads();
  for (long long at = threadIdx.x; at < count; at += blockDim.x) {
    Pack<T> pack = packs[at];
    for (int k = 0; k < Pack<T>::kCount; k++) {
      float chance = __expf(pack.item[k].wide() - log_sum);
      float hit = at * Pack<T>::kCount + k == target ? 1.f : 0.f;
      pack.item[k] = T::of(ignored ? 0.f : (chance - hit) * gain);
    }
    packs[at] = pack;
  }
}
)");

std::string instance_of(const char* kind) { return std::string("using T = ") + kind + ";\n"; }

bool packs_fit(const at::Tensor& logits) {
  const auto pack = 16 / logits.element_size();
  return logits.is_contiguous() && logits.size(1) % static_cast<int64_t>(pack) == 0 &&
         reinterpret_cast<uintptr_t>(logits.const_data_ptr()) % 16 == 0;
}

}  // namespace

namespace lowtide {

bool cross_entropy_in_place(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& losses, double gain) {
  const auto* kind = name_of(logits.scalar_type());
  if (!logits.is_cuda() || kind == nullptr || logits.size(0) == 0 || !packs_fit(logits)) return false;
  void* kernel = loss_kernels.kernel(logits.device(), instance_of(kind), "loss");
  if (kernel == nullptr) return false;
  void* logits_data = logits.mutable_data_ptr();
  const void* targets_data = targets.const_data_ptr();
  void* losses_data = losses.mutable_data_ptr();
  long long vocabulary = logits.size(1);
  float narrow_gain = static_cast<float>(gain);
  void* arguments[] = {&logits_data, &targets_data, &losses_data, &vocabulary, &narrow_gain};
  launch(kernel, logits.device(), logits.size(0), kThreads, arguments);
  return true;
}

}  // namespace lowtide

extern "C" {

// Fails, with the reason, where the kernel is not used on a device.
Status lt_loss_kernel_check(int32_t device) noexcept {
  return lowtide::guarded([&] {
    const auto problem = loss_kernels.problem(device, instance_of("Bf16"));
    TORCH_CHECK(problem.empty(), problem);
  });
}
}
