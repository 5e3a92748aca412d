// AdamW over lists of parameters.
//
// On a GPU one kernel reads a gradient, the moments and the weight once, and writes moments, weight and the weight's narrow copy:
// LibTorch's own update would be followed by a pass that casts the weights, and come after one that scales the gradients.

#include "linear.h"
#include "lowtide.h"
#include "nvrtc.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

namespace {

// Parameters of one launch: their table is an argument of the kernel, and those take at most 4 KB.
constexpr int kMostAtOnce = 64;
constexpr int kUpdateThreads = 256;
// Elements of a block; a multiple of four.
constexpr int kEach = 8192;
// Of a parameter, so that the blocks of a launch can be counted: half a TiB.
constexpr int64_t kMostElements = int64_t{1} << 37;
static_assert(kMostElements / kEach * kMostAtOnce <= INT32_MAX, "blocks of a launch are counted in 31 bits");

lowtide::Program update_kernels(R"(
struct Lists {
  float* values[MOST];
  const float* slopes[MOST];
  float* means[MOST];
  float* squares[MOST];
  T* narrow[MOST];
  long long lengths[MOST];
  // The first block of each, and the one behind the last.
  int blocks[MOST + 1];
};

struct Rule {
  float beta1, rest1, beta2, rest2, decay, rate, root, epsilon;
};

// Every operation is rounded by itself, so that an element has the same bits whichever way it is reached.
__device__ __forceinline__ void change(float& value, float slope, float& mean, float& square, const Rule& rule) {
  mean = __fmaf_rn(rule.beta1, mean, __fmul_rn(rule.rest1, slope));
  square = __fmaf_rn(rule.beta2, square, __fmul_rn(__fmul_rn(rule.rest2, slope), slope));
  float step = __fdiv_rn(mean, __fmaf_rn(__fsqrt_rn(square), rule.root, rule.epsilon));
  value = __fmaf_rn(-rule.rate, step, __fmul_rn(value, rule.decay));
}

struct alignas(8) Four {
  T item[4];
};

__device__ bool is_aligned(const void* place, int bytes) { return (unsigned long long)place % bytes == 0; }

extern "C" __global__ void __launch_bounds__(THREADS) update(const __grid_constant__ Lists lists, const Rule rule, int count, const float* factor) {
  int at = 0;
  for (int most = count; at + 1 < most;) {
    int middle = (at + most) / 2;
    if (lists.blocks[middle] <= (int)blockIdx.x) at = middle; else most = middle;
  }
  const float by = factor == nullptr ? 1.f : *factor;
  const long long start = (long long)(blockIdx.x - lists.blocks[at]) * EACH;
  const long long left = lists.lengths[at] - start;
  const int length = left < EACH ? (int)left : EACH;
  float* values = lists.values[at] + start;
  const float* slopes = lists.slopes[at] + start;
  float* means = lists.means[at] + start;
  float* squares = lists.squares[at] + start;
  T* narrow = lists.narrow[at] == nullptr ? nullptr : lists.narrow[at] + start;
  int packed = 0;
  if (is_aligned(values, 16) && is_aligned(slopes, 16) && is_aligned(means, 16) && is_aligned(squares, 16) && is_aligned(narrow, 8)) {
    packed = length / 4 * 4;
#pragma unroll 2
    for (int i = 4 * threadIdx.x; i < packed; i += 4 * THREADS) {
      float4 value = *(const float4*)(values + i), slope = *(const float4*)(slopes + i);
      float4 mean = *(const float4*)(means + i), square = *(const float4*)(squares + i);
      change(value.x, __fmul_rn(slope.x, by), mean.x, square.x, rule);
      change(value.y, __fmul_rn(slope.y, by), mean.y, square.y, rule);
      change(value.z, __fmul_rn(slope.z, by), mean.z, square.z, rule);
      change(value.w, __fmul_rn(slope.w, by), mean.w, square.w, rule);
      *(float4*)(values + i) = value;
      *(float4*)(means + i) = mean;
      *(float4*)(squares + i) = square;
      if (narrow != nullptr) *(Four*)(narrow + i) = Four{T::of(value.x), T::of(value.y), T::of(value.z), T::of(value.w)};
    }
  }
  for (int i = packed + threadIdx.x; i < length; i += THREADS) {
    float value = values[i], mean = means[i], square = squares[i];
    change(value, __fmul_rn(slopes[i], by), mean, square, rule);
    values[i] = value;
    means[i] = mean;
    squares[i] = square;
    if (narrow != nullptr) narrow[i] = T::of(value);
  }
}
)");

// As the kernel has it.
struct Lists {
  void* values[kMostAtOnce];
  const void* slopes[kMostAtOnce];
  void* means[kMostAtOnce];
  void* squares[kMostAtOnce];
  void* narrow[kMostAtOnce];
  long long lengths[kMostAtOnce];
  int blocks[kMostAtOnce + 1];
};
static_assert(sizeof(Lists) <= 4000, "arguments of a kernel take at most 4 KB");

// The kernel that writes narrow copies of a kind, or none.
void* update_kernel(const at::Device& device, at::ScalarType narrow) {
  const auto number = [](int value) { return std::to_string(value); };
  const auto instance = std::string("using T = ") + (narrow == at::kHalf ? "Half" : "Bf16") + "; constexpr int MOST = " +
                        number(kMostAtOnce) + ", THREADS = " + number(kUpdateThreads) + ", EACH = " + number(kEach) + ";\n";
  return device.is_cuda() ? update_kernels.kernel(device, instance, "update") : nullptr;
}

at::Tensor in_memory_order(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_non_overlapping_and_dense(), "a parameter with gaps in memory cannot be updated in slices");
  return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
}

// Whether both lay out their elements alike. Strides of dimensions of size 1 say nothing.
bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  for (int64_t i = 0; i < a.dim(); i++) {
    if (a.size(i) != 1 && a.stride(i) != b.stride(i)) return false;
  }
  return true;
}

// Without allocating: filling a tensor on the CPU makes another one first.
void set_step(at::Tensor& step, double value) {
  if (step.is_cpu()) {
    *step.mutable_data_ptr<float>() = static_cast<float>(value);
  } else {
    step.fill_(value);
  }
}

at::Tensor in_layout_of(const at::Tensor& gradient, const at::Tensor& parameter) {
  // The engine keeps gradients in their parameter's layout; one that was set by hand is copied into it.
  return same_layout(gradient, parameter) ? gradient : at::empty_like(parameter).copy_(gradient);
}

}  // namespace

extern "C" {

struct AdamwRule {
  double learning_rate;
  double beta1;
  double beta2;
  double weight_decay;
  double epsilon;
};

}

namespace {

// Elements of a parameter that are updated, with their gradients, moments and narrow copy, if they have one.
struct Part {
  at::Tensor values, slopes, means, squares, narrow;
};

bool is_plain(const at::Tensor& tensor, const Part& part) {
  return tensor.scalar_type() == at::kFloat && tensor.device() == part.values.device() && tensor.numel() == part.values.numel() &&
         same_layout(tensor, part.values);
}

// The update of these by the kernel. Nothing is allocated.
void update_by_kernel(const std::vector<Part>& parts, at::ScalarType narrow, double step, const AdamwRule& rule, const at::Tensor* factor) {
  const auto narrowed = [](double value) { return static_cast<float>(value); };
  struct {
    float beta1, rest1, beta2, rest2, decay, rate, root, epsilon;
  } constants{narrowed(rule.beta1),
              narrowed(1.0 - rule.beta1),
              narrowed(rule.beta2),
              narrowed(1.0 - rule.beta2),
              narrowed(1.0 - rule.learning_rate * rule.weight_decay),
              narrowed(rule.learning_rate / (1.0 - std::pow(rule.beta1, step))),
              narrowed(1.0 / std::sqrt(1.0 - std::pow(rule.beta2, step))),
              narrowed(rule.epsilon)};
  const auto device = parts[0].values.device();
  void* kernel = update_kernel(device, narrow);
  TORCH_CHECK(kernel != nullptr, "the device has no kernel for an update");
  // All of this before anything is changed: what failed in the middle would be begun anew.
  for (const auto& part : parts) {
    for (const auto* tensor : {&part.slopes, &part.means, &part.squares}) {
      TORCH_CHECK(is_plain(*tensor, part), "gradients and moments of an update are in fp32, as large as their parameter");
    }
    TORCH_CHECK(part.values.numel() < kMostElements, "too many elements for one update: ", part.values.numel());
  }
  const void* by = factor == nullptr ? nullptr : factor->const_data_ptr();
  for (size_t begin = 0; begin < parts.size(); begin += kMostAtOnce) {
    Lists lists{};
    int count = static_cast<int>(std::min<size_t>(kMostAtOnce, parts.size() - begin));
    int64_t blocks = 0;
    for (int i = 0; i < count; i++) {
      const auto& part = parts[begin + i];
      lists.values[i] = part.values.mutable_data_ptr();
      lists.slopes[i] = part.slopes.const_data_ptr();
      lists.means[i] = part.means.mutable_data_ptr();
      lists.squares[i] = part.squares.mutable_data_ptr();
      lists.narrow[i] = part.narrow.defined() ? part.narrow.mutable_data_ptr() : nullptr;
      lists.lengths[i] = part.values.numel();
      lists.blocks[i] = static_cast<int>(blocks);
      blocks += (part.values.numel() + kEach - 1) / kEach;
    }
    lists.blocks[count] = static_cast<int>(blocks);
    void* arguments[] = {&lists, &constants, &count, &by};
    if (blocks > 0) lowtide::launch(kernel, device, blocks, kUpdateThreads, arguments);
  }
}

bool has_update_kernel(const at::Tensor& parameter) {
  return parameter.is_cuda() && parameter.scalar_type() == at::kFloat && parameter.is_non_overlapping_and_dense() &&
         update_kernel(parameter.device(), at::kBFloat16) != nullptr;
}

}  // namespace

extern "C" {

// Whether all of these are updated by the kernel: then gradients may be multiplied by a factor on the way.
Status lt_has_update_kernel(at::Tensor* const* parameters, size_t count, int32_t* out) noexcept {
  return lowtide::guarded([&] {
    const auto all = lowtide::list(parameters, count);
    *out = count > 0 && std::all_of(all.begin(), all.end(), has_update_kernel) ? 1 : 0;
  });
}

// One update in place: of `values`, which are all or some elements of `parameters`. `step` is a scalar for LibTorch's own update;
// it holds the number of the step being made. By the kernel, gradients are multiplied by `factor` first, where there is one, and narrow
// copies of whole parameters are written too. Nothing is allocated here, so an out-of-memory error cannot leave the parameters
// half updated.
Status lt_adamw(at::Tensor* const* parameters, at::Tensor* const* values, at::Tensor* const* grads, at::Tensor* const* first,
                at::Tensor* const* second, size_t count, at::Tensor* step, double step_value, AdamwRule rule, int32_t by_kernel,
                at::Tensor* factor) noexcept {
  return lowtide::guarded([&] {
    at::NoGradGuard no_grad;
    if (by_kernel == 0) {
      TORCH_CHECK(factor == nullptr, "only the kernel multiplies gradients by a factor");
      set_step(*step, step_value);
      const std::vector<at::Tensor> steps(count, *step);
      at::_fused_adamw_(lowtide::list(values, count), lowtide::list(grads, count), lowtide::list(first, count),
                        lowtide::list(second, count), {}, steps, rule.learning_rate, rule.beta1, rule.beta2, rule.weight_decay,
                        rule.epsilon, /*amsgrad=*/false, /*maximize=*/false);
      return;
    }
    std::vector<Part> parts;
    std::vector<at::Tensor> written;
    auto kind = at::kBFloat16;
    for (size_t i = 0; i < count; i++) {
      at::Tensor narrow;
      if (values[i]->numel() == parameters[i]->numel()) narrow = lowtide::kept_narrow(*parameters[i]);
      if (narrow.defined() && written.empty()) kind = narrow.scalar_type();
      if (narrow.defined() && narrow.scalar_type() == kind && same_layout(narrow, *parameters[i])) {
        written.push_back(*parameters[i]);
      } else {
        narrow = at::Tensor();
      }
      parts.push_back({*values[i], in_layout_of(*grads[i], *values[i]), *first[i], *second[i], narrow});
    }
    update_by_kernel(parts, kind, step_value, rule, factor);
    for (const auto& weight : written) lowtide::narrow_is_fresh(weight);
  });
}

// Refuses a tensor that cannot be updated in slices.
Status lt_check_dense(at::Tensor* tensor) noexcept {
  return lowtide::guarded([&] { in_memory_order(tensor->detach()); });
}

// Bytes of host memory that the device copies from and to without waiting; plain memory where there is no GPU.
Status lt_host_bytes(int64_t bytes, int32_t pinned, at::Tensor** out) noexcept {
  return lowtide::guarded([&] {
    *out = new at::Tensor(at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(pinned != 0)));
  });
}

// The update of one parameter whose moments are on the host: they pass through the halves of `stage` slice by slice, so
// that no more than `stage` is needed on the device. `done` counts elements and is where a call that failed goes on.
//
// Nothing waits: copies and kernels are ordered by the stream. The caller waits before anybody reads the moments.
Status lt_adamw_staged(at::Tensor* parameter, at::Tensor* gradient, at::Tensor* first, at::Tensor* second,
                       at::Tensor* stage, at::Tensor* step, double step_value, AdamwRule rule, int32_t by_kernel,
                       at::Tensor* factor, int64_t* done) noexcept {
  return lowtide::guarded([&] {
    at::NoGradGuard no_grad;
    TORCH_CHECK(factor == nullptr || by_kernel != 0, "only the kernel multiplies gradients by a factor");
    if (by_kernel == 0) set_step(*step, step_value);
    const auto values = in_memory_order(parameter->detach());
    const auto slopes = in_memory_order(in_layout_of(*gradient, *parameter));
    const auto kind = first->scalar_type();
    const auto half = stage->numel() / 2;
    const auto slice = half / static_cast<int64_t>(first->element_size());
    const auto staged = [&](int64_t start, int64_t count) {
      return stage->narrow(0, start, count * static_cast<int64_t>(first->element_size())).view(kind);
    };
    while (*done < values.numel()) {
      const auto count = std::min(slice, values.numel() - *done);
      const auto here = [&](const at::Tensor& whole) { return in_memory_order(whole).narrow(0, *done, count); };
      auto mean = staged(0, count), square = staged(half, count);
      auto mean_at_home = here(*first), square_at_home = here(*second);
      mean.copy_(mean_at_home, /*non_blocking=*/true);
      square.copy_(square_at_home, /*non_blocking=*/true);
      if (by_kernel != 0) {
        update_by_kernel({{here(values), here(slopes), mean, square, at::Tensor()}}, at::kBFloat16, step_value, rule, factor);
      } else {
        at::_fused_adamw_({here(values)}, {here(slopes)}, {mean}, {square}, {}, {*step}, rule.learning_rate, rule.beta1,
                          rule.beta2, rule.weight_decay, rule.epsilon, /*amsgrad=*/false, /*maximize=*/false);
      }
      mean_at_home.copy_(mean, /*non_blocking=*/true);
      square_at_home.copy_(square, /*non_blocking=*/true);
      *done += count;
    }
  });
}
}
