// Gradients as lists: norm and clipping, unscaling, letting go.

#include "lowtide.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

extern "C" {

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

// What gradients whose norm is `norm` are multiplied by so that it is at most `limit`: on their device, without waiting for it.
Status lt_clip_factor(at::Tensor* norm, double limit, at::Tensor** out) noexcept {
  return lowtide::guarded([&] {
    at::NoGradGuard no_grad;
    *out = new at::Tensor((limit / (*norm + 1e-6)).clamp_max(1.0));
  });
}

// Multiplies the gradients by a factor on their device, in place.
Status lt_scale_grads(at::Tensor* const* grads, size_t count, at::Tensor* factor) noexcept {
  return lowtide::guarded([&] {
    at::NoGradGuard no_grad;
    at::_foreach_mul_(lowtide::list(grads, count), *factor);
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
