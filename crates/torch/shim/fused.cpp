// What stands between the products of a transformer, each as one pass over memory: the embedding, the residual sum with the
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

#include "fused_kernels.h"
#include "linear.h"
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

// Whether a pack can be read at once: rows are multiples of it, so the first decides.
bool is_ready(const at::Tensor& tensor) {
  const auto pack = pack_of(tensor.scalar_type(), tensor.size(-1)) * static_cast<int64_t>(tensor.element_size());
  return tensor.is_contiguous() && reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % pack == 0;
}

bool is_wide_rows(const at::Tensor& tensor) { return tensor.scalar_type() == at::kFloat && is_ready(tensor); }

// Blocks where each takes many rows.
int64_t many_rows(const at::Tensor& rows, int64_t count, int64_t each) {
  return std::min(count, each * lowtide::multiprocessors(rows.device()));
}

// A gradient of a kind that kernels can read, or an undefined one.
at::Tensor gradient_of(const at::Tensor& gradient, at::ScalarType kind) {
  if (!gradient.defined()) return gradient;
  const auto rows = gradient.to(kind).contiguous();
  return is_ready(rows) ? rows : rows.clone();
}

at::Tensor or_none(const Optional& tensor) { return tensor.value_or(at::Tensor()); }
Optional optional(const at::Tensor* tensor) { return tensor == nullptr ? Optional() : Optional(*tensor); }

const void* data_of(const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; }
void* room_of(const at::Tensor& tensor) { return tensor.defined() ? tensor.mutable_data_ptr() : nullptr; }

// Blocks of a kernel that a multiprocessor has room for.
int64_t resident_blocks(const char* name, const at::Device& device, at::ScalarType kind, int64_t width) {
  return lowtide::resident_blocks(kernel_for(name, device, kind, width), device, layout_of(name, kind, width).threads);
}

template <typename... Arguments>
void start(const char* name, const at::Tensor& rows, at::ScalarType kind, int64_t width, int64_t blocks, Arguments... values) {
  void* arguments[] = {&values...};
  lowtide::launch(kernel_for(name, rows.device(), kind, width), rows.device(), blocks, layout_of(name, kind, width).threads, arguments);
}

// As the kernel has it.
struct Sums {
  float* place[3] = {};
  bool adds[3] = {};
};

// Adds up parts (lists, count, width) over their second dimension: gradients of what is learned, undefined where that is, or where
// they were added to the gradient that it has.
variable_list sum_parts(const at::Tensor& parts, at::ScalarType kind, const variable_list& learned) {
  const auto lists = parts.size(0);
  auto width = static_cast<int>(parts.size(2)), count = static_cast<int>(parts.size(1));
  variable_list out(lists);
  Sums sums;
  for (int64_t list = 0; list < lists; list++) {
    const auto& to = learned[list];
    if (!to.defined()) continue;
    auto place = lowtide::takes_sums(to) && to.is_contiguous() ? to.mutable_grad() : at::Tensor();
    sums.adds[list] = place.defined();
    if (!place.defined()) out[list] = place = at::empty({width}, parts.options());
    sums.place[list] = place.mutable_data_ptr<float>();
  }
  const void* from = parts.const_data_ptr();
  void* arguments[] = {&from, &sums, &count, &width};
  auto* kernel = kernel_for("sum_parts", parts.device(), kind, width);
  lowtide::launch(kernel, parts.device(), lists * ((width + 31) / 32), 1024, arguments);
  return out;
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
    const auto at_once = Layout::of_warps(width).rows_at_once();
    start("norm_forward", x, kind, width, (rows + at_once - 1) / at_once, data_of(x), data_of(delta), data_of(bias),
          data_of(gain), data_of(shift), room_of(sum), room_of(normed), room_of(means), room_of(scales), rows, static_cast<int>(width),
          static_cast<float>(epsilon));
    context->set_materialize_grads(false);
    context->save_for_backward({sum, means, scales, gain, shift, bias});
    context->saved_data["adds"] = delta.defined();
    context->saved_data["kind"] = static_cast<int64_t>(kind);
    return {sum, normed};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto &sum = saved[0], &means = saved[1], &scales = saved[2], &gain = saved[3];
    const bool adds = context->saved_data["adds"].toBool();
    const auto kind = static_cast<at::ScalarType>(context->saved_data["kind"].toInt());
    const auto width = sum.size(-1);
    const long long rows = sum.numel() / width;
    const auto of_sum = gradient_of(gradients[0], at::kFloat);
    auto of_normed = gradient_of(gradients[1], kind);
    if (!of_normed.defined()) of_normed = at::zeros_like(sum, sum.options().dtype(kind));
    const auto of_x = at::empty_like(sum);
    const auto of_delta = adds ? at::empty_like(sum, sum.options().dtype(kind)) : at::Tensor();
    const auto blocks = many_rows(sum, rows, Layout::of_warps(width).summing_blocks());
    const auto parts = at::empty({3, blocks, width}, sum.options());
    start("norm_backward", sum, kind, width, blocks, data_of(sum), data_of(means), data_of(scales), data_of(gain),
          data_of(of_normed), data_of(of_sum), room_of(of_x), room_of(of_delta), room_of(parts), rows, static_cast<int>(width));
    const auto sums = sum_parts(parts, kind, {gain, saved[4], saved[5]});
    return {of_x, of_delta, sums[2], sums[0], sums[1], {}, {}};
  }
};

struct Add : torch::autograd::Function<Add> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& delta, const Optional& bias_in) {
    const auto bias = or_none(bias_in);
    const auto width = x.size(-1);
    const long long rows = x.numel() / width;
    auto sum = at::empty_like(x);
    const auto kind = delta.scalar_type();
    start("add_forward", x, kind, width, many_rows(x, rows, kBlocksEach), data_of(x), data_of(delta), data_of(bias), room_of(sum), rows,
          static_cast<int>(width));
    context->save_for_backward({bias});
    context->saved_data["kind"] = static_cast<int64_t>(kind);
    return sum;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto kind = static_cast<at::ScalarType>(context->saved_data["kind"].toInt());
    const auto of_sum = gradient_of(gradients[0], at::kFloat);
    const auto width = of_sum.size(-1);
    const long long rows = of_sum.numel() / width;
    const auto of_delta = at::empty_like(of_sum, of_sum.options().dtype(kind));
    const auto blocks = many_rows(of_sum, rows, kBlocksThatSum);
    const auto parts = at::empty({1, blocks, width}, of_sum.options());
    start("add_backward", of_sum, kind, width, blocks, data_of(of_sum), room_of(of_delta), room_of(parts), rows,
          static_cast<int>(width));
    return {of_sum, of_delta, sum_parts(parts, kind, {context->get_saved_variables()[0]})[0]};
  }
};

struct Gelu : torch::autograd::Function<Gelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Optional& bias_in) {
    const auto bias = or_none(bias_in);
    const auto width = x.size(-1);
    const long long rows = x.numel() / width;
    auto out = at::empty_like(x);
    start("gelu_forward", x, x.scalar_type(), width, many_rows(x, rows, kBlocksEach), data_of(x), data_of(bias), room_of(out), rows,
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
    // One more than find room would begin when all others are done.
    const auto blocks = many_rows(x, rows, resident_blocks("gelu_backward", x.device(), x.scalar_type(), width));
    const auto parts = at::empty({1, blocks, width}, x.options().dtype(at::kFloat));
    start("gelu_backward", x, x.scalar_type(), width, blocks, data_of(x), data_of(bias), data_of(of_out), room_of(of_x),
          room_of(parts), rows, static_cast<int>(width));
    return {of_x, sum_parts(parts, x.scalar_type(), {bias})[0]};
  }
};

// Rows of a table and of positions, added up. The gradient of the table is added to the one that it has, only where it has one: LibTorch
// writes a gradient as large as the whole table, and adds that.
struct Embed : torch::autograd::Function<Embed> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& ids, const at::Tensor& table, const at::Tensor& positions,
                            at::ScalarType kind) {
    const auto width = table.size(1);
    const long long rows = ids.numel(), table_rows = table.size(0);
    auto shape = ids.sizes().vec();
    shape.push_back(width);
    auto out = at::empty(shape, table.options());
    start("embed_forward", table, kind, width, many_rows(table, rows, kBlocksEach), data_of(ids), data_of(table), data_of(positions), room_of(out),
          rows, static_cast<int>(width), table_rows, static_cast<int>(ids.size(-1)));
    context->save_for_backward({ids, table});
    context->saved_data["kind"] = static_cast<int64_t>(kind);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto &ids = saved[0], &table = saved[1];
    const auto of_out = gradient_of(gradients[0], at::kFloat);
    add_rows(of_out, ids.reshape({-1}), table, static_cast<at::ScalarType>(context->saved_data["kind"].toInt()));
    return {at::Tensor(), at::Tensor(), of_out.sum(0), at::Tensor()};
  }

 private:
  // Rows that a block takes.
  static constexpr int kSlice = 16;

  static void add_rows(const at::Tensor& of_out, const at::Tensor& ids, const at::Tensor& table, at::ScalarType kind) {
    auto& gradient = table.mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(table);
    TORCH_CHECK(gradient.is_contiguous(), "the gradient of an embedding is not contiguous");
    const auto [sorted, order] = at::sort(ids.to(at::kInt), /*stable=*/true, /*dim=*/0, /*descending=*/false);
    const auto width = static_cast<int>(table.size(1)), rows = static_cast<int>(ids.numel()), table_rows = static_cast<int>(table.size(0));
    const int64_t slices = (rows + kSlice - 1) / kSlice;
    const auto parts = at::empty({slices, 2, width}, table.options());
    start("embed_backward", table, kind, width, slices, data_of(of_out), data_of(sorted), data_of(order), room_of(gradient), room_of(parts), rows,
          width, table_rows, kSlice);
    start("embed_join", table, kind, width, slices, data_of(sorted), data_of(parts), room_of(gradient), rows, width, table_rows, kSlice);
  }
};

// As the kernel has it.
struct Steps {
  long long sample[3], head[3], token[3];
};

// Queries, keys and values as views of one tensor, to which `bias` was added already. Their gradients go straight to their places in
// one, and the bias's is summed on the way; LibTorch stacks them first, turns the stack, and reads it again for the sum.
struct Heads : torch::autograd::Function<Heads> {
  static variable_list forward(AutogradContext* context, const at::Tensor& joined, const at::Tensor& bias, int64_t heads) {
    context->set_materialize_grads(false);
    context->saved_data["heads"] = heads;
    context->saved_data["shape"] = joined.sizes().vec();
    context->saved_data["kind"] = static_cast<int64_t>(joined.scalar_type());
    context->save_for_backward({bias});
    variable_list out;
    for (int64_t part = 0; part < 3; part++) out.push_back(part_of(joined, heads, part));
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto heads = context->saved_data["heads"].toInt();
    const auto shape = context->saved_data["shape"].toIntVector();
    const auto kind = static_cast<at::ScalarType>(context->saved_data["kind"].toInt());
    const auto bias = context->get_saved_variables()[0];
    at::Tensor joined;
    for (const auto& gradient : gradients) {
      if (gradient.defined() && !joined.defined()) joined = at::empty(shape, gradient.options().dtype(kind));
    }
    if (!joined.defined()) return {joined, {}, {}};
    if (can_join(gradients, joined, bias) && kernel_for("heads_backward", joined.device(), kind, shape[2]) != nullptr) {
      return {joined, join(gradients, joined, shape[2] / (3 * heads), bias), {}};
    }
    for (int64_t part = 0; part < 3; part++) {
      auto place = part_of(joined, heads, part);
      const auto& gradient = gradients[part];
      if (gradient.defined()) {
        place.copy_(gradient);
      } else {
        place.zero_();
      }
    }
    return {joined, joined.sum(at::IntArrayRef{0, 1}, /*keepdim=*/false, at::kFloat).to(bias.scalar_type()), {}};
  }

  // (b, t, 3 * c) to (b, heads, t, c / heads).
  static at::Tensor part_of(const at::Tensor& joined, int64_t heads, int64_t part) {
    const auto width = joined.size(2) / 3;
    return joined.narrow(2, part * width, width).unflatten(2, {heads, width / heads}).transpose(1, 2);
  }

  // Writes the gradients to their places, and gives that of the bias.
  static at::Tensor join(const variable_list& gradients, const at::Tensor& joined, int64_t head_width, const at::Tensor& bias) {
    Steps steps;
    for (int part = 0; part < 3; part++) {
      steps.sample[part] = gradients[part].stride(0);
      steps.head[part] = gradients[part].stride(1);
      steps.token[part] = gradients[part].stride(2);
    }
    const auto kind = joined.scalar_type();
    auto rows = static_cast<int>(joined.size(0) * joined.size(1)), width = static_cast<int>(joined.size(2));
    auto tokens = static_cast<int>(joined.size(1)), head = static_cast<int>(head_width);
    const auto blocks = many_rows(joined, rows, kBlocksThatSum);
    const auto parts = at::empty({1, blocks, width}, joined.options().dtype(at::kFloat));
    const void *queries = data_of(gradients[0]), *keys = data_of(gradients[1]), *values = data_of(gradients[2]);
    void *to = room_of(joined), *sums = room_of(parts);
    void* arguments[] = {&queries, &keys, &values, &steps, &to, &sums, &rows, &width, &tokens, &head};
    const auto threads = width / (16 / static_cast<int>(joined.element_size()));
    lowtide::launch(kernel_for("heads_backward", joined.device(), kind, width), joined.device(), blocks, (threads + 31) / 32 * 32, arguments);
    return sum_parts(parts, kind, {bias})[0];
  }

  // Whether 16 bytes can be read at once wherever a head begins, and a block has a whole row.
  static bool can_join(const variable_list& gradients, const at::Tensor& joined, const at::Tensor& bias) {
    const auto pack = 16 / static_cast<int64_t>(joined.element_size());
    if (bias.scalar_type() != at::kFloat || joined.size(2) / pack > 1024 || joined.numel() / joined.size(2) > (1 << 30)) return false;
    for (const auto& gradient : gradients) {
      if (!gradient.defined() || gradient.scalar_type() != joined.scalar_type() || gradient.stride(3) != 1 || gradient.size(3) % pack != 0) return false;
      for (int64_t dimension = 0; dimension < 3; dimension++) {
        if (gradient.stride(dimension) % pack != 0) return false;
      }
      if (reinterpret_cast<uintptr_t>(gradient.const_data_ptr()) % 16 != 0) return false;
    }
    return true;
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
                            (!delta.defined() || (delta.scalar_type() == kind && is_ready(delta))) &&
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
    const bool has_kernel = x.numel() > 0 && is_wide_rows(x) && is_ready(delta) && are_plain({bias}, x.device()) &&
                            kernel_for("add_forward", x.device(), delta.scalar_type(), x.size(-1)) != nullptr;
    *sum = new at::Tensor(has_kernel ? Add::apply(x, delta, optional(bias_in)) : x + with_bias(delta, bias));
  });
}

// GELU of `x` + `bias`; `bias` may be null.
Status lt_gelu(at::Tensor* x_in, at::Tensor* bias_in, at::Tensor** out) noexcept {
  return lowtide::guarded([&] {
    const auto& x = *x_in;
    const auto bias = or_none(optional(bias_in));
    const bool has_kernel = x.numel() > 0 && is_ready(x) && are_plain({bias}, x.device()) &&
                            kernel_for("gelu_forward", x.device(), x.scalar_type(), x.size(-1)) != nullptr;
    *out = new at::Tensor(has_kernel ? Gelu::apply(x, optional(bias_in)) : at::gelu(with_bias(x, bias)));
  });
}

// The rows of `table` that `ids` (b, t) name, each plus the row of `positions` (t, c) for its place.
Status lt_embed(at::Tensor* ids_in, at::Tensor* table_in, at::Tensor* positions_in, at::Tensor** out) noexcept {
  return lowtide::guarded([&] {
    const auto &ids = *ids_in, &table = *table_in, &positions = *positions_in;
    TORCH_CHECK(ids.dim() == 2 && table.dim() == 2 && positions.dim() == 2 && ids.size(1) == positions.size(0) && table.size(1) == positions.size(1),
                "an embedding takes ids (b, t), a table (v, c) and positions (t, c), not ", ids.sizes(), ", ", table.sizes(), " and ",
                positions.sizes());
    const auto kind = lowtide::product_kind(table);
    constexpr int64_t kMost = 1 << 30;
    const bool has_kernel = ids.numel() > 0 && ids.scalar_type() == at::kLong && ids.device() == table.device() &&
                            lowtide::takes_sums(table) && are_plain({table, positions}, table.device()) && ids.numel() < kMost &&
                            table.size(0) < kMost && kernel_for("embed_forward", table.device(), kind, table.size(1)) != nullptr;
    *out = new at::Tensor(has_kernel ? Embed::apply(ids.contiguous(), table, positions, kind) : at::embedding(table, ids) + positions);
  });
}

// Queries, keys and values (b, heads, t, d) of `x` (b, t, c) times `weight` (3 * heads * d, c) transposed, plus `bias`.
Status lt_heads(at::Tensor* x, at::Tensor* weight, at::Tensor* bias, int64_t heads, at::Tensor** queries, at::Tensor** keys,
                at::Tensor** values) noexcept {
  return lowtide::guarded([&] {
    TORCH_CHECK(x->dim() == 3 && heads > 0 && weight->dim() == 2 && weight->size(0) % (3 * heads) == 0,
                "heads are cut from (b, t, c) by a weight (3 * heads * d, c), not from ", x->sizes(), " by ", weight->sizes(), " with ",
                heads, " heads");
    variable_list parts;
    if (x->is_cuda()) {
      parts = Heads::apply(lowtide::linear(*x, *weight, lowtide::narrow(*bias, lowtide::product_kind(*x))), *bias, heads);
    } else {
      // Unbound at once: three selections would each write a gradient of the whole.
      const auto joined = at::linear(*x, *weight, *bias);
      parts = joined.unflatten(2, {3, heads, joined.size(2) / (3 * heads)}).permute({2, 0, 3, 1, 4}).unbind(0);
    }
    *queries = new at::Tensor(parts[0]);
    *keys = new at::Tensor(parts[1]);
    *values = new at::Tensor(parts[2]);
  });
}

// Fails, with the reason, where a device has none of these kernels.
Status lt_fused_check(int32_t device) noexcept {
  return lowtide::guarded([&] {
    const auto problem = block_kernels.problem(device, Layout::of_blocks(4).instance("Bf16"));
    TORCH_CHECK(problem.empty(), problem);
  });
}
}
