// Products with weights that are held in fp32 and multiplied in a narrower kind, on a GPU.
//
// The narrow weights are kept from step to step instead of being cast in every piece, and the product that makes a weight's gradient
// adds it to the one that is there, in fp32: no narrow gradient is written, cast and added.

#include "linear.h"

#include "lowtide.h"
#include "products.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <mutex>
#include <unordered_map>
#include <utility>

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Weights and their narrow copies.
struct Copies {
  struct Copy {
    at::Tensor weight;
    at::Tensor narrow;
    // Whether it was written together with the weight.
    bool is_fresh = false;
  };

  std::mutex mutex;
  bool is_open = false;
  std::unordered_map<const c10::TensorImpl*, Copy> all;
};

Copies& copies() {
  static Copies kept;
  return kept;
}

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, at::ScalarType kind) {
    c10::impl::ExcludeDispatchKeyGuard plain(c10::autocast_dispatch_keyset);
    const auto narrow = lowtide::narrow(weight, kind);
    const auto rows = x.to(kind).reshape({-1, x.size(-1)});
    auto shape = x.sizes().vec();
    shape.back() = weight.size(0);
    const auto out = lowtide::product(rows, narrow.t(), bias ? bias->to(kind) : at::Tensor());
    context->save_for_backward({rows, narrow, weight});
    context->saved_data["kind"] = static_cast<int64_t>(x.scalar_type());
    context->saved_data["shape"] = x.sizes().vec();
    context->saved_data["biased"] = bias.has_value() && bias->requires_grad();
    return out.view(shape);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto &rows = saved[0], &narrow = saved[1], &weight = saved[2];
    const auto of_out = gradients[0].to(rows.scalar_type()).reshape({-1, narrow.size(0)});
    at::Tensor of_x, of_bias;
    if (context->needs_input_grad(0)) {
      const auto kind = static_cast<at::ScalarType>(context->saved_data["kind"].toInt());
      of_x = lowtide::product(of_out, narrow).view(context->saved_data["shape"].toIntVector()).to(kind);
    }
    if (context->saved_data["biased"].toBool()) of_bias = of_out.sum(0, /*keepdim=*/false, at::kFloat);
    lowtide::add_product(weight, of_out.t(), rows);
    return {of_x, at::Tensor(), of_bias, at::Tensor()};
  }
};

}  // namespace

namespace lowtide {

bool takes_sums(const at::Tensor& learned) {
  return learned.is_cuda() && learned.scalar_type() == at::kFloat && learned.requires_grad() && learned.is_leaf();
}

at::Tensor narrow(const at::Tensor& weight, at::ScalarType kind) {
  if (weight.scalar_type() == kind || !takes_sums(weight)) return weight.detach().to(kind);
  auto& kept = copies();
  const std::lock_guard<std::mutex> lock(kept.mutex);
  const auto found = kept.all.find(weight.unsafeGetTensorImpl());
  if (found != kept.all.end() && found->second.narrow.scalar_type() == kind) return found->second.narrow;
  auto copy = weight.detach().to(kind);
  // What is allocated while a graph is recorded is the graph's.
  if (kept.is_open && !capturing) kept.all[weight.unsafeGetTensorImpl()] = {weight, copy};
  return copy;
}

at::Tensor kept_narrow(const at::Tensor& weight) {
  auto& kept = copies();
  const std::lock_guard<std::mutex> lock(kept.mutex);
  const auto found = kept.all.find(weight.unsafeGetTensorImpl());
  return found == kept.all.end() ? at::Tensor() : found->second.narrow;
}

void narrow_is_fresh(const at::Tensor& weight) {
  auto& kept = copies();
  const std::lock_guard<std::mutex> lock(kept.mutex);
  const auto found = kept.all.find(weight.unsafeGetTensorImpl());
  if (found != kept.all.end()) found->second.is_fresh = true;
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  const auto kind = product_kind(x);
  const bool is_own = x.numel() > 0 && weight.dim() == 2 && x.dim() >= 2 && adds_products(weight, kind);
  return is_own ? Linear::apply(x, weight, bias, kind) : at::linear(x, weight, bias);
}

bool adds_products(const at::Tensor& weight, at::ScalarType kind) {
  return takes_sums(weight) && at::isReducedFloatingType(kind) && weight.is_contiguous();
}

void add_product(const at::Tensor& weight, const at::Tensor& left, const at::Tensor& right) {
  auto& gradient = weight.mutable_grad();
  if (gradient.defined()) {
    add_product_to(gradient, left, right);
  } else {
    gradient = at::mm(left, right, at::kFloat);
  }
}

void add_scaled(const at::Tensor& weight, const at::Tensor& values, const at::Tensor& factor) {
  auto& gradient = weight.mutable_grad();
  if (gradient.defined()) {
    gradient.addcmul_(values, factor);
  } else {
    gradient = values * factor;
  }
}

}  // namespace lowtide

extern "C" {

// `x` times `weight` transposed, plus `bias`, which may be null.
Status lt_linear(at::Tensor* x, at::Tensor* weight, at::Tensor* bias, at::Tensor** out) noexcept {
  return lowtide::guarded([&] {
    *out = new at::Tensor(lowtide::linear(*x, *weight, bias == nullptr ? std::optional<at::Tensor>() : *bias));
  });
}

// From now on narrow copies are kept, or not, and then those that there are go.
void lt_narrow_keep(int32_t keeps) noexcept {
  auto& kept = copies();
  const std::lock_guard<std::mutex> lock(kept.mutex);
  kept.is_open = keeps != 0;
  if (!kept.is_open) kept.all.clear();
}

// Makes the copies of these what they are now, but for those that were written with them.
Status lt_narrow_refresh(at::Tensor* const* changed, size_t count) noexcept {
  return lowtide::guarded([&] {
    auto& kept = copies();
    const std::lock_guard<std::mutex> lock(kept.mutex);
    at::NoGradGuard no_grad;
    std::vector<at::Tensor> weights, narrow;
    for (const auto& weight : lowtide::list(changed, count)) {
      const auto found = kept.all.find(weight.unsafeGetTensorImpl());
      if (found == kept.all.end() || std::exchange(found->second.is_fresh, false)) continue;
      weights.push_back(weight.detach());
      narrow.push_back(found->second.narrow);
    }
    if (!weights.empty()) at::_foreach_copy_(narrow, weights);
  });
}
}
