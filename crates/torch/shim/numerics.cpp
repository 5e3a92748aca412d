// Updates over lists of tensors: AdamW, gradient norm and clipping, unscaling.

#include "lowtide.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

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
                size_t count, at::Tensor* step, double step_value, AdamwRule rule) {
  return lowtide::guarded([&] {
    at::NoGradGuard no_grad;
    if (step->is_cpu()) {
      *step->mutable_data_ptr<float>() = static_cast<float>(step_value);
    } else {
      step->fill_(step_value);
    }
    const std::vector<at::Tensor> steps(count, *step);
    at::_fused_adamw_(lowtide::list(params, count), lowtide::list(grads, count), lowtide::list(first, count),
                      lowtide::list(second, count), {}, steps, rule.learning_rate, rule.beta1, rule.beta2,
                      rule.weight_decay, rule.epsilon, /*amsgrad=*/false, /*maximize=*/false);
  });
}

// The norm of all gradients together, on their device, without waiting for it.
Status lt_grad_norm(at::Tensor* const* grads, size_t count, at::Tensor** out) {
  return lowtide::guarded([&] {
    at::NoGradGuard no_grad;
    const auto norms = at::_foreach_norm(lowtide::list(grads, count), 2);
    *out = new at::Tensor(at::linalg_vector_norm(at::stack(norms), 2));
  });
}

void lt_release_grads(at::Tensor* const* parameters, size_t count) {
  for (size_t i = 0; i < count; i++) parameters[i]->mutable_grad().reset();
}

// Scales the gradients in place so that their norm, `norm`, is at most `limit`.
Status lt_clip(at::Tensor* const* grads, size_t count, at::Tensor* norm, double limit) {
  return lowtide::guarded([&] {
    at::NoGradGuard no_grad;
    const auto factor = (limit / (*norm + 1e-6)).clamp_max(1.0);
    at::_foreach_mul_(lowtide::list(grads, count), factor);
  });
}

// Divides by the loss scale in place; `found` becomes 1 where a value is not finite.
Status lt_unscale(at::Tensor* const* grads, size_t count, at::Tensor* found, at::Tensor* inverse_scale) {
  return lowtide::guarded([&] {
    at::NoGradGuard no_grad;
    at::_amp_foreach_non_finite_check_and_unscale_(lowtide::list(grads, count), *found, *inverse_scale);
  });
}

// Copies in place without raising the version that autograd checks. For state that no graph may depend on.
Status lt_copy_quietly(at::Tensor* target, at::Tensor* source) {
  return lowtide::guarded([&] {
    at::NoGradGuard no_grad;
    target->variable_data().copy_(*source);
  });
}
}
