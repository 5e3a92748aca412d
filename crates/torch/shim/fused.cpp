// What stands between the products of a transformer block, each as one pass over memory: the residual sum with the
// normalisation after it, GELU, and attention's input cut into heads.
//
// These parts read and write far more than they compute, so their time is that of the bytes they move. LibTorch's own
// operations write the sum, its normalised values in fp32 and those again in the kind of the products, and read every
// gradient once more to sum it for a bias. Here a row is held in registers: values are read once and written once, forward
// and backward, and the gradients of biases are summed where the values pass by.
//
// Sums over rows are made in a fixed order (each block its rows, then all blocks), so the same card gives the same bits.
// Where there is no kernel (CPU, another kind of number, a width that is no multiple of 4), the same is done by LibTorch's
// operations.

#include "lowtide.h"
#include "nvrtc.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
// What may be missing: autograd does not take an undefined tensor for an input.
using Optional = std::optional<at::Tensor>;

// Each thread of a block holds the same columns of every row: up to this many times four.
constexpr int64_t kMostPacks = 4;
constexpr int64_t kMostThreads = 512;
// Blocks for each multiprocessor where a block takes many rows. More would hide more waiting, and leave more sums to add up.
constexpr int64_t kBlocksEach = 8;

// `T` is the kind of the products, `K` how many times four columns a thread holds.
lowtide::Program block_kernels(R"(
template <typename N>
struct alignas(4 * sizeof(N)) Four {
  N item[4];
};

template <typename N>
__device__ void load(float* out, const N* from) {
  Four<N> four = *reinterpret_cast<const Four<N>*>(from);
  for (int k = 0; k < 4; k++) out[k] = four.item[k].wide();
}

template <typename N>
__device__ void store(N* to, const float* from) {
  Four<N> four;
  for (int k = 0; k < 4; k++) four.item[k] = N::of(from[k]);
  *reinterpret_cast<Four<N>*>(to) = four;
}

__device__ void load(float* out, const float* from) { load(out, reinterpret_cast<const Float*>(from)); }
__device__ void store(float* to, const float* from) { store(reinterpret_cast<Float*>(to), from); }

// The sums of two values over all threads of the block, for all of them. `turn` is another one at each call in a row.
__device__ void sum_block(float& a, float& b, int turn) {
  __shared__ float parts[2][2][32];
  for (int lane = 16; lane > 0; lane >>= 1) {
    a += __shfl_xor_sync(0xffffffffu, a, lane);
    b += __shfl_xor_sync(0xffffffffu, b, lane);
  }
  int warp = threadIdx.x >> 5;
  if ((threadIdx.x & 31) == 0) { parts[turn][0][warp] = a; parts[turn][1][warp] = b; }
  __syncthreads();
  a = 0.f;
  b = 0.f;
  for (int other = 0; other < blockDim.x >> 5; other++) { a += parts[turn][0][other]; b += parts[turn][1][other]; }
}

#define COLUMNS(k, column) \
  for (int k = 0, column = threadIdx.x * 4; k < K; k++, column += blockDim.x * 4) if (column < width)

// sum = x + delta + bias, and its normalised values. Without `delta` the sum is x, and is not written.
extern "C" __global__ void norm_forward(const float* x, const T* delta, const float* bias, const float* gain, const float* shift,
                             float* sum, T* normed, float* means, float* scales, long long rows, int width, float epsilon) {
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const long long start = row * width;
    float values[K][4];
    float total = 0.f, none = 0.f;
    COLUMNS(k, column) {
      load(values[k], x + start + column);
      if (delta) {
        float more[4];
        load(more, delta + start + column);
        for (int i = 0; i < 4; i++) values[k][i] += more[i];
        if (bias) {
          load(more, bias + column);
          for (int i = 0; i < 4; i++) values[k][i] += more[i];
        }
        store(sum + start + column, values[k]);
      }
      for (int i = 0; i < 4; i++) total += values[k][i];
    }
    sum_block(total, none, 0);
    const float mean = total / width;
    float spread = 0.f;
    COLUMNS(k, column) {
      for (int i = 0; i < 4; i++) { float apart = values[k][i] - mean; spread += apart * apart; }
    }
    sum_block(spread, none, 1);
    const float scale = rsqrtf(spread / width + epsilon);
    COLUMNS(k, column) {
      float gains[4], shifts[4], out[4];
      load(gains, gain + column);
      load(shifts, shift + column);
      for (int i = 0; i < 4; i++) out[i] = (values[k][i] - mean) * scale * gains[i] + shifts[i];
      store(normed + start + column, out);
    }
    if (threadIdx.x == 0) { means[row] = mean; scales[row] = scale; }
  }
}

// The gradient of x, also as that of `delta` where there is one, and the block's part of those of gain, shift and bias.
extern "C" __global__ void norm_backward(const float* sum, const float* means, const float* scales, const float* gain, const T* of_normed,
                              const float* of_sum, float* of_x, T* of_delta, float* parts, long long rows, int width) {
  float of_gain[K][4] = {}, of_shift[K][4] = {}, of_bias[K][4] = {};
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const long long start = row * width;
    const float mean = means[row], scale = scales[row];
    float unit[K][4], slope[K][4];
    float slopes = 0.f, along = 0.f;
    COLUMNS(k, column) {
      float gains[4];
      load(unit[k], sum + start + column);
      load(slope[k], of_normed + start + column);
      load(gains, gain + column);
      for (int i = 0; i < 4; i++) {
        unit[k][i] = (unit[k][i] - mean) * scale;
        of_gain[k][i] += slope[k][i] * unit[k][i];
        of_shift[k][i] += slope[k][i];
        slope[k][i] *= gains[i];
        slopes += slope[k][i];
        along += slope[k][i] * unit[k][i];
      }
    }
    sum_block(slopes, along, (row / gridDim.x) & 1);
    slopes /= width;
    along /= width;
    COLUMNS(k, column) {
      float out[4], beside[4] = {};
      if (of_sum) load(beside, of_sum + start + column);
      for (int i = 0; i < 4; i++) {
        out[i] = (slope[k][i] - slopes - unit[k][i] * along) * scale + beside[i];
        of_bias[k][i] += out[i];
      }
      store(of_x + start + column, out);
      if (of_delta) store(of_delta + start + column, out);
    }
  }
  const long long whole = (long long)gridDim.x * width, own = (long long)blockIdx.x * width;
  COLUMNS(k, column) {
    store(parts + own + column, of_gain[k]);
    store(parts + whole + own + column, of_shift[k]);
    store(parts + 2 * whole + own + column, of_bias[k]);
  }
}

// x + delta + bias.
extern "C" __global__ void add_forward(const float* x, const T* delta, const float* bias, float* sum, long long rows, int width) {
  float shifts[K][4] = {};
  COLUMNS(k, column) { if (bias) load(shifts[k], bias + column); }
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const long long start = row * width;
    COLUMNS(k, column) {
      float values[4], more[4];
      load(values, x + start + column);
      load(more, delta + start + column);
      for (int i = 0; i < 4; i++) values[i] += more[i] + shifts[k][i];
      store(sum + start + column, values);
    }
  }
}

// The gradient of the sum as that of `delta`, and the block's part of that of the bias.
extern "C" __global__ void add_backward(const float* of_sum, T* of_delta, float* parts, long long rows, int width) {
  float of_bias[K][4] = {};
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const long long start = row * width;
    COLUMNS(k, column) {
      float values[4];
      load(values, of_sum + start + column);
      for (int i = 0; i < 4; i++) of_bias[k][i] += values[i];
      store(of_delta + start + column, values);
    }
  }
  COLUMNS(k, column) { store(parts + (long long)blockIdx.x * width + column, of_bias[k]); }
}

extern "C" __global__ void gelu_forward(const T* x, const float* bias, T* out, long long rows, int width) {
  float shifts[K][4] = {};
  COLUMNS(k, column) { if (bias) load(shifts[k], bias + column); }
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const long long start = row * width;
    COLUMNS(k, column) {
      float values[4];
      load(values, x + start + column);
      for (int i = 0; i < 4; i++) {
        float value = values[i] + shifts[k][i];
        values[i] = value * normcdff(value);
      }
      store(out + start + column, values);
    }
  }
}

extern "C" __global__ void gelu_backward(const T* x, const float* bias, const T* of_out, T* of_x, float* parts, long long rows, int width) {
  float shifts[K][4] = {}, of_bias[K][4] = {};
  COLUMNS(k, column) { if (bias) load(shifts[k], bias + column); }
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const long long start = row * width;
    COLUMNS(k, column) {
      float values[4], slopes[4];
      load(values, x + start + column);
      load(slopes, of_out + start + column);
      for (int i = 0; i < 4; i++) {
        float value = values[i] + shifts[k][i];
        slopes[i] *= normcdff(value) + value * 0.3989422804f * __expf(-0.5f * value * value);
        of_bias[k][i] += slopes[i];
      }
      store(of_x + start + column, slopes);
    }
  }
  COLUMNS(k, column) { store(parts + (long long)blockIdx.x * width + column, of_bias[k]); }
}
)");

// How rows of a width are laid over threads.
struct Layout {
  int64_t packs;
  int threads;

  static Layout of(int64_t width) {
    int64_t packs = 1;
    while (packs < kMostPacks && width > 4 * kMostThreads * packs) packs *= 2;
    const int64_t each = (width + 4 * packs - 1) / (4 * packs);
    return {packs, static_cast<int>((each + 31) / 32 * 32)};
  }
};

std::string instance_of(const char* kind, int64_t packs) {
  return std::string("using T = ") + kind + "; constexpr int K = " + std::to_string(packs) + ";\n";
}

// A kernel for rows of a kind and width, or none.
void* kernel_for(const char* name, const at::Device& device, at::ScalarType kind, int64_t width) {
  const auto* type = lowtide::name_of(kind);
  if (!device.is_cuda() || type == nullptr || width % 4 != 0 || width > 4 * kMostThreads * kMostPacks) return nullptr;
  return block_kernels.kernel(device, instance_of(type, Layout::of(width).packs), name);
}

bool is_wide_rows(const at::Tensor& tensor) { return tensor.scalar_type() == at::kFloat && tensor.is_contiguous(); }

// Blocks where each takes many rows.
int64_t many_rows(const at::Tensor& rows, int64_t count) {
  return std::min(count, kBlocksEach * lowtide::multiprocessors(rows.device()));
}

// A contiguous gradient of a kind, or an undefined one.
at::Tensor gradient_of(const at::Tensor& gradient, at::ScalarType kind) {
  return gradient.defined() ? gradient.to(kind).contiguous() : gradient;
}

at::Tensor or_none(const Optional& tensor) { return tensor.value_or(at::Tensor()); }
Optional optional(const at::Tensor* tensor) { return tensor == nullptr ? Optional() : Optional(*tensor); }

const void* data_of(const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; }
void* room_of(const at::Tensor& tensor) { return tensor.defined() ? tensor.mutable_data_ptr() : nullptr; }

template <typename... Arguments>
void start(const char* name, const at::Tensor& rows, at::ScalarType kind, int64_t width, int64_t blocks, Arguments... values) {
  void* arguments[] = {&values...};
  lowtide::launch(kernel_for(name, rows.device(), kind, width), rows.device(), blocks, Layout::of(width).threads, arguments);
}

struct AddNorm : torch::autograd::Function<AddNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const Optional& delta_in, const Optional& bias_in,
                               const at::Tensor& gain, const at::Tensor& shift, double epsilon, at::ScalarType kind) {
    const auto delta = or_none(delta_in), bias = or_none(bias_in);
    const auto width = x.size(-1);
    const long long rows = x.numel() / width;
    const auto sum = delta.defined() ? at::empty_like(x) : x;
    const auto normed = at::empty_like(x, x.options().dtype(kind));
    const auto means = at::empty({rows}, x.options()), scales = at::empty({rows}, x.options());
    start("norm_forward", x, kind, width, rows, data_of(x), data_of(delta), data_of(bias), data_of(gain), data_of(shift),
          room_of(sum), room_of(normed), room_of(means), room_of(scales), rows, static_cast<int>(width),
          static_cast<float>(epsilon));
    context->set_materialize_grads(false);
    context->save_for_backward({sum, means, scales, gain});
    context->saved_data["adds"] = delta.defined();
    context->saved_data["biased"] = bias.defined();
    context->saved_data["kind"] = static_cast<int64_t>(kind);
    return {sum, normed};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto &sum = saved[0], &means = saved[1], &scales = saved[2], &gain = saved[3];
    const bool adds = context->saved_data["adds"].toBool(), is_biased = context->saved_data["biased"].toBool();
    const auto kind = static_cast<at::ScalarType>(context->saved_data["kind"].toInt());
    const auto width = sum.size(-1);
    const long long rows = sum.numel() / width;
    const auto of_sum = gradient_of(gradients[0], at::kFloat);
    auto of_normed = gradient_of(gradients[1], kind);
    if (!of_normed.defined()) of_normed = at::zeros_like(sum, sum.options().dtype(kind));
    const auto of_x = at::empty_like(sum);
    const auto of_delta = adds ? at::empty_like(sum, sum.options().dtype(kind)) : at::Tensor();
    const auto blocks = many_rows(sum, rows);
    const auto parts = at::empty({3, blocks, width}, sum.options());
    start("norm_backward", sum, kind, width, blocks, data_of(sum), data_of(means), data_of(scales), data_of(gain),
          data_of(of_normed), data_of(of_sum), room_of(of_x), room_of(of_delta), room_of(parts), rows, static_cast<int>(width));
    const auto sums = parts.sum(1);
    return {of_x, of_delta, is_biased ? sums[2] : at::Tensor(), sums[0], sums[1], {}, {}};
  }
};

struct Add : torch::autograd::Function<Add> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& delta, const Optional& bias_in) {
    const auto bias = or_none(bias_in);
    const auto width = x.size(-1);
    const long long rows = x.numel() / width;
    auto sum = at::empty_like(x);
    const auto kind = delta.scalar_type();
    start("add_forward", x, kind, width, many_rows(x, rows), data_of(x), data_of(delta), data_of(bias), room_of(sum), rows,
          static_cast<int>(width));
    context->saved_data["biased"] = bias.defined();
    context->saved_data["kind"] = static_cast<int64_t>(kind);
    return sum;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto kind = static_cast<at::ScalarType>(context->saved_data["kind"].toInt());
    const auto of_sum = gradient_of(gradients[0], at::kFloat);
    const auto width = of_sum.size(-1);
    const long long rows = of_sum.numel() / width;
    const auto of_delta = at::empty_like(of_sum, of_sum.options().dtype(kind));
    const auto blocks = many_rows(of_sum, rows);
    const auto parts = at::empty({blocks, width}, of_sum.options());
    start("add_backward", of_sum, kind, width, blocks, data_of(of_sum), room_of(of_delta), room_of(parts), rows,
          static_cast<int>(width));
    return {of_sum, of_delta, context->saved_data["biased"].toBool() ? parts.sum(0) : at::Tensor()};
  }
};

struct Gelu : torch::autograd::Function<Gelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Optional& bias_in) {
    const auto bias = or_none(bias_in);
    const auto width = x.size(-1);
    const long long rows = x.numel() / width;
    auto out = at::empty_like(x);
    start("gelu_forward", x, x.scalar_type(), width, many_rows(x, rows), data_of(x), data_of(bias), room_of(out), rows,
          static_cast<int>(width));
    context->save_for_backward({x, bias});
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &bias = saved[1];
    const auto width = x.size(-1);
    const long long rows = x.numel() / width;
    const auto of_out = gradient_of(gradients[0], x.scalar_type());
    const auto of_x = at::empty_like(x);
    const auto blocks = many_rows(x, rows);
    const auto parts = at::empty({blocks, width}, x.options().dtype(at::kFloat));
    start("gelu_backward", x, x.scalar_type(), width, blocks, data_of(x), data_of(bias), data_of(of_out), room_of(of_x),
          room_of(parts), rows, static_cast<int>(width));
    return {of_x, bias.defined() ? parts.sum(0) : at::Tensor()};
  }
};

// Queries, keys and values as views of one tensor. Their gradients go straight to their places in one, by 16 bytes at a time;
// LibTorch stacks them first and then turns the stack.
struct Heads : torch::autograd::Function<Heads> {
  static variable_list forward(AutogradContext* context, const at::Tensor& joined, int64_t heads) {
    context->set_materialize_grads(false);
    context->saved_data["heads"] = heads;
    context->saved_data["shape"] = joined.sizes().vec();
    context->saved_data["kind"] = static_cast<int64_t>(joined.scalar_type());
    variable_list out;
    for (int64_t part = 0; part < 3; part++) out.push_back(part_of(joined, heads, part));
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto heads = context->saved_data["heads"].toInt();
    const auto shape = context->saved_data["shape"].toIntVector();
    const auto kind = static_cast<at::ScalarType>(context->saved_data["kind"].toInt());
    at::Tensor joined;
    for (const auto& gradient : gradients) {
      if (gradient.defined() && !joined.defined()) joined = at::empty(shape, gradient.options().dtype(kind));
    }
    if (!joined.defined()) return {joined, {}};
    for (int64_t part = 0; part < 3; part++) {
      auto place = part_of(joined, heads, part);
      const auto& gradient = gradients[part];
      if (!gradient.defined()) {
        place.zero_();
      } else if (moves_wide(gradient, kind) && moves_wide(place, kind)) {
        place.view(at::kComplexDouble).copy_(gradient.view(at::kComplexDouble));
      } else {
        place.copy_(gradient);
      }
    }
    return {joined, {}};
  }

  // (b, t, 3 * c) to (b, heads, t, c / heads).
  static at::Tensor part_of(const at::Tensor& joined, int64_t heads, int64_t part) {
    const auto width = joined.size(2) / 3;
    return joined.narrow(2, part * width, width).unflatten(2, {heads, width / heads}).transpose(1, 2);
  }

  // Whether it can be seen as numbers of 16 bytes.
  static bool moves_wide(const at::Tensor& tensor, at::ScalarType kind) {
    const auto pack = 16 / static_cast<int64_t>(tensor.element_size());
    if (tensor.scalar_type() != kind || tensor.stride(-1) != 1 || tensor.size(-1) % pack != 0) return false;
    for (int64_t dimension = 0; dimension + 1 < tensor.dim(); dimension++) {
      if (tensor.stride(dimension) % pack != 0) return false;
    }
    return tensor.storage_offset() % pack == 0 && reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
  }
};

// Whether biases and gains are as kernels take them.
bool are_plain(std::initializer_list<at::Tensor> tensors, const at::Device& device) {
  for (const auto& tensor : tensors) {
    if (tensor.defined() && !(is_wide_rows(tensor) && tensor.device() == device)) return false;
  }
  return true;
}

at::Tensor with_bias(const at::Tensor& x, const at::Tensor& bias) { return bias.defined() ? x + bias.to(x.scalar_type()) : x; }

}  // namespace

extern "C" {

// `x` + `delta` + `bias`, and that normalised over its last dimension; `delta` and `bias` may be null. On a GPU the normalised
// values come out in the kind of products.
Status lt_add_norm(at::Tensor* x_in, at::Tensor* delta_in, at::Tensor* bias_in, at::Tensor* gain_in, at::Tensor* shift_in,
                   double epsilon, at::Tensor** sum, at::Tensor** normed) noexcept {
  return lowtide::guarded([&] {
    const auto &x = *x_in, &gain = *gain_in, &shift = *shift_in;
    const auto delta = or_none(optional(delta_in)), bias = or_none(optional(bias_in));
    const auto kind = lowtide::product_kind(x);
    const bool has_kernel = x.numel() > 0 && is_wide_rows(x) && are_plain({bias, gain, shift}, x.device()) &&
                            (!delta.defined() || (delta.scalar_type() == kind && delta.is_contiguous())) &&
                            kernel_for("norm_forward", x.device(), kind, x.size(-1)) != nullptr;
    if (has_kernel) {
      const auto out = AddNorm::apply(x, optional(delta_in), optional(bias_in), gain, shift, epsilon, kind);
      *sum = new at::Tensor(out[0]);
      *normed = new at::Tensor(out[1]);
      return;
    }
    const auto whole = delta.defined() ? x + with_bias(delta, bias) : x;
    const auto out = at::layer_norm(whole, gain.sizes(), gain, shift, epsilon);
    *sum = new at::Tensor(whole);
    *normed = new at::Tensor(out);
  });
}

// `x` + `delta` + `bias`; `bias` may be null.
Status lt_add(at::Tensor* x_in, at::Tensor* delta_in, at::Tensor* bias_in, at::Tensor** sum) noexcept {
  return lowtide::guarded([&] {
    const auto &x = *x_in, &delta = *delta_in;
    const auto bias = or_none(optional(bias_in));
    const bool has_kernel = x.numel() > 0 && is_wide_rows(x) && delta.is_contiguous() && are_plain({bias}, x.device()) &&
                            kernel_for("add_forward", x.device(), delta.scalar_type(), x.size(-1)) != nullptr;
    *sum = new at::Tensor(has_kernel ? Add::apply(x, delta, optional(bias_in)) : x + with_bias(delta, bias));
  });
}

// GELU of `x` + `bias`; `bias` may be null.
Status lt_gelu(at::Tensor* x_in, at::Tensor* bias_in, at::Tensor** out) noexcept {
  return lowtide::guarded([&] {
    const auto& x = *x_in;
    const auto bias = or_none(optional(bias_in));
    const bool has_kernel = x.numel() > 0 && x.is_contiguous() && are_plain({bias}, x.device()) &&
                            kernel_for("gelu_forward", x.device(), x.scalar_type(), x.size(-1)) != nullptr;
    *out = new at::Tensor(has_kernel ? Gelu::apply(x, optional(bias_in)) : at::gelu(with_bias(x, bias)));
  });
}

// Queries, keys and values (b, heads, t, d) of `joined` (b, t, 3 * heads * d).
Status lt_split_heads(at::Tensor* joined, int64_t heads, at::Tensor** queries, at::Tensor** keys, at::Tensor** values) noexcept {
  return lowtide::guarded([&] {
    TORCH_CHECK(joined->dim() == 3 && heads > 0 && joined->size(2) % (3 * heads) == 0, "heads are cut from (b, t, 3 * heads * d), not ",
                joined->sizes(), " with ", heads, " heads");
    variable_list parts;
    if (joined->is_cuda()) {
      parts = Heads::apply(*joined, heads);
    } else {
      // Unbound at once: three selections would each write a gradient of the whole.
      parts = joined->unflatten(2, {3, heads, joined->size(2) / (3 * heads)}).permute({2, 0, 3, 1, 4}).unbind(0);
    }
    *queries = new at::Tensor(parts[0]);
    *keys = new at::Tensor(parts[1]);
    *values = new at::Tensor(parts[2]);
  });
}

// Fails, with the reason, where a device has none of these kernels.
Status lt_fused_check(int32_t device) noexcept {
  return lowtide::guarded([&] {
    const auto problem = block_kernels.problem(device, instance_of("Bf16", 1));
    TORCH_CHECK(problem.empty(), problem);
  });
}
}
