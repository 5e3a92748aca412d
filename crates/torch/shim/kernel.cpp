// The cross-entropy kernel, and what brings its gradient to scale.
//
// A row is read twice and written once: the logits of a large vocabulary are the largest tensor of a language model, and
// LibTorch's own path widens them to fp32 and passes over them about eight times. The second time a row comes from the device's cache:
// no more rows are under way than find room there.

#include "kernel.h"

#include "lowtide.h"
#include "nvrtc.h"

#include <algorithm>

namespace {

constexpr int kThreads = 512;
constexpr int64_t kMostBlocksEach = 4;

// Blocks for each multiprocessor, so that all rows under way take about half of the device's cache.
int64_t blocks_each(const at::Device& device, int64_t row_bytes) {
  const int64_t rows = lowtide::cache_bytes(device) * 55 / 100 / row_bytes;
  return std::clamp<int64_t>(rows / lowtide::multiprocessors(device), 1, kMostBlocksEach);
}

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

__device__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// exp(x) is two to the power of so many times x.
constexpr float LOG2_E = 1.4426950408889634f;
// Packs that a thread asks for before it looks at the first.
constexpr int AT_ONCE = 4;

#define ROWS(row) for (long long row = blockIdx.x; row < rows; row += gridDim.x)
#define PACKS(first) for (int first = threadIdx.x; first < count; first += AT_ONCE * THREADS)

// Asks for the packs of a thread from `first` on.
__device__ void ask(Pack<T> (&pack)[AT_ONCE], const Pack<T>* packs, int first, int count) {
  for (int i = 0; i < AT_ONCE; i++) {
    const int at = first + i * THREADS;
    if (at < count) pack[i] = packs[at];
  }
}

// Writes past the cache: nobody reads a row again before the whole is written.
__device__ void write(Pack<T>* to, const Pack<T>& pack) {
  const u32* words = reinterpret_cast<const u32*>(&pack);
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

// `vocabulary` is a multiple of the pack, and rows start on 16 bytes.
extern "C" __global__ void __launch_bounds__(THREADS, 2) loss(T* logits, const long long* targets, float* losses, long long rows,
                                                              long long vocabulary, float gain) {
  constexpr int kCount = Pack<T>::kCount;
  const int count = static_cast<int>(vocabulary / kCount);
  ROWS(row) {
    T* const values = logits + row * vocabulary;
    Pack<T>* const packs = reinterpret_cast<Pack<T>*>(values);
    float top = -INFINITY, sum = 0.f;
    PACKS(first) {
      Pack<T> pack[AT_ONCE];
      ask(pack, packs, first, count);
      for (int i = 0; i < AT_ONCE; i++) {
        if (first + i * THREADS >= count) break;
        float high = -INFINITY;
        for (int k = 0; k < kCount; k++) high = fmaxf(high, pack[i].item[k].wide());
        if (high > top) {
          sum *= power_of_two((top - high) * LOG2_E);
          top = high;
        }
        const float less = top == -INFINITY ? 0.f : top * LOG2_E;
        for (int k = 0; k < kCount; k++) sum += power_of_two(fmaf(pack[i].item[k].wide(), LOG2_E, -less));
      }
    }
    merge_block(top, sum);
    const float log_sum = top + logf(sum);
    const long long target = targets[row];
    const bool ignored = target == -100;
    const bool outside = !ignored && (target < 0 || target >= vocabulary);
    if (threadIdx.x == 0) losses[row] = ignored ? 0.f : outside ? NAN : log_sum - values[target].wide();
    // Also before the places of the sums are used for the next row.
    __syncthreads();
    if (gain == 0.f) continue;
    const float factor = ignored ? 0.f : gain, less = log_sum * LOG2_E;
    const int hit = ignored || outside ? -1 : static_cast<int>(target / kCount), inside = static_cast<int>(target % kCount);
    PACKS(first) {
      Pack<T> pack[AT_ONCE];
      ask(pack, packs, first, count);
      for (int i = 0; i < AT_ONCE; i++) {
        const int at = first + i * THREADS;
        if (at >= count) break;
        float chances[kCount];
        for (int k = 0; k < kCount; k++) chances[k] = power_of_two(fmaf(pack[i].item[k].wide(), LOG2_E, -less));
        if (at == hit) {
          for (int k = 0; k < kCount; k++) chances[k] -= k == inside ? 1.f : 0.f;
        }
        for (int k = 0; k < kCount; k++) pack[i].item[k] = T::of(ignored ? 0.f : chances[k] * factor);
        write(packs + at, pack[i]);
      }
    }
  }
}

// `from` times the one number `factor`, in fp32.
extern "C" __global__ void scale(const Pack<T>* from, Pack<T>* to, const float* factor, long long count) {
  const float by = *factor;
  for (long long at = (long long)blockIdx.x * THREADS + threadIdx.x; at < count; at += (long long)gridDim.x * THREADS) {
    Pack<T> pack = from[at];
    for (int k = 0; k < Pack<T>::kCount; k++) pack.item[k] = T::of(pack.item[k].wide() * by);
    to[at] = pack;
  }
}
)");

std::string instance_of(const char* kind) {
  return std::string("using T = ") + kind + "; constexpr int THREADS = " + std::to_string(kThreads) + ";\n";
}

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
  long long rows = logits.size(0), vocabulary = logits.size(1);
  float narrow_gain = static_cast<float>(gain);
  void* arguments[] = {&logits_data, &targets_data, &losses_data, &rows, &vocabulary, &narrow_gain};
  const auto each = blocks_each(logits.device(), vocabulary * static_cast<int64_t>(logits.element_size()));
  launch(kernel, logits.device(), std::min<int64_t>(rows, each * multiprocessors(logits.device())), kThreads, arguments);
  return true;
}

at::Tensor scaled(const at::Tensor& values, const at::Tensor& factor, at::ScalarType kind) {
  const auto* name = name_of(kind);
  const bool fits = values.is_cuda() && name != nullptr && values.scalar_type() == kind && values.numel() > 0 && values.dim() == 2 &&
                    packs_fit(values) && factor.scalar_type() == at::kFloat && factor.device() == values.device();
  void* kernel = fits ? loss_kernels.kernel(values.device(), instance_of(name), "scale") : nullptr;
  if (kernel == nullptr) {
    const bool is_narrow = at::isReducedFloatingType(values.scalar_type());
    return is_narrow ? values.to(at::kFloat).mul_(factor).to(kind) : (values * factor).to(kind);
  }
  auto out = at::empty_like(values);
  const void *from = values.const_data_ptr(), *by = factor.const_data_ptr();
  void* to = out.mutable_data_ptr();
  long long count = values.nbytes() / 16;
  void* arguments[] = {&from, &to, &by, &count};
  const auto each = resident_blocks(kernel, values.device(), kThreads);
  launch(kernel, values.device(), std::min<int64_t>((count + kThreads - 1) / kThreads, each * multiprocessors(values.device())), kThreads, arguments);
  return out;
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
