// Updates over lists of tensors: AdamW, gradient norm and clipping, unscaling.

#include "lowtide.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace {

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

}  // namespace

extern "C" {

struct AdamwRule {
  double learning_rate;
  double beta1;
  double beta2;
  double weight_decay;
  double epsilon;
};

// One fused update of all parameters in place. `step` is one scalar that all of them share; it holds the number of the
// step being made. Nothing is allocated here, so an out-of-memory error cannot leave the parameters half updated.
Status lt_adamw(at::Tensor* const* params, at::Tensor* const* grads, at::Tensor* const* first, at::Tensor* const* second,
                size_t count, at::Tensor* step, double step_value, AdamwRule rule) noexcept {
  return lowtide::guarded([&] {
    at::NoGradGuard no_grad;
    set_step(*step, step_value);
    const std::vector<at::Tensor> steps(count, *step);
    at::_fused_adamw_(lowtide::list(params, count), lowtide::list(grads, count), lowtide::list(first, count),
                      lowtide::list(second, count), {}, steps, rule.learning_rate, rule.beta1, rule.beta2,
                      rule.weight_decay, rule.epsilon, /*amsgrad=*/false, /*maximize=*/false);
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
                       at::Tensor* stage, at::Tensor* step, double step_value, AdamwRule rule, int64_t* done) noexcept {
  return lowtide::guarded([&] {
    at::NoGradGuard no_grad;
    set_step(*step, step_value);
    const auto values = in_memory_order(parameter->detach());
    // The engine keeps gradients in their parameter's layout; one that was set by hand is copied into it.
    const auto slopes = in_memory_order(same_layout(*gradient, *parameter) ? *gradient : at::empty_like(*parameter).copy_(*gradient));
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
      at::_fused_adamw_({here(values)}, {here(slopes)}, {mean}, {square}, {}, {*step}, rule.learning_rate, rule.beta1,
                        rule.beta2, rule.weight_decay, rule.epsilon, /*amsgrad=*/false, /*maximize=*/false);
      mean_at_home.copy_(mean, /*non_blocking=*/true);
      square_at_home.copy_(square, /*non_blocking=*/true);
      *done += count;
    }
  });
}

// The norm of all gradients together, on their device, without waiting for it.
Status lt_grad_norm(at::Tensor* const* grads, size_t count, at::Tensor** out) noexcept {
  return lowtide::guarded([&] {
    at::NoGradGuard no_grad;
    const auto norms = at::_foreach_norm(lowtide::list(grads, count), 2);
    *out = new at::Tensor(at::linalg_vector_norm(at::stack(norms), 2));
  });
}

Status lt_release_grads(at::Tensor* const* parameters, size_t count) noexcept {
  return lowtide::guarded([&] {
    for (size_t i = 0; i < count; i++) parameters[i]->mutable_grad().reset();
  });
}

// Gives parameters gradients of zero, in the memory that is handed over.
Status lt_zero_grads(at::Tensor* const* parameters, at::Tensor* const* grads, size_t count) noexcept {
  return lowtide::guarded([&] {
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < count; i++) parameters[i]->mutable_grad() = *grads[i];
    if (count > 0) at::_foreach_zero_(lowtide::list(grads, count));
  });
}

// Scales the gradients in place so that their norm, `norm`, is at most `limit`.
Status lt_clip(at::Tensor* const* grads, size_t count, at::Tensor* norm, double limit) noexcept {
  return lowtide::guarded([&] {
    at::NoGradGuard no_grad;
    const auto factor = (limit / (*norm + 1e-6)).clamp_max(1.0);
    at::_foreach_mul_(lowtide::list(grads, count), factor);
  });
}

// Divides by the loss scale in place; `found` becomes 1 where a value is not finite.
Status lt_unscale(at::Tensor* const* grads, size_t count, at::Tensor* found, at::Tensor* inverse_scale) noexcept {
  return lowtide::guarded([&] {
    at::NoGradGuard no_grad;
    at::_amp_foreach_non_finite_check_and_unscale_(lowtide::list(grads, count), *found, *inverse_scale);
  });
}

// Copies in place without raising the version that autograd checks. For state that no graph may depend on.
Status lt_copy_quietly(at::Tensor* target, at::Tensor* source) noexcept {
  return lowtide::guarded([&] {
    at::NoGradGuard no_grad;
    target->variable_data().copy_(*source);
  });
}
}
