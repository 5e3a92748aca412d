// The loss head of a language model: output layer and cross-entropy in one, in pieces.
//
// The gradient of the logits is known as soon as they are, so the gradients of the hidden values and of the weight are
// computed at once, piece by piece, and the logits are let go. Backward only multiplies by the gradient that comes in.
// The products are those of the plain way, none is made twice, and no more than one piece of logits is ever held.

#include "kernel.h"
#include "linear.h"
#include "lowtide.h"
#include "products.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

namespace {

using torch::autograd::variable_list;

// A factor on the gradient while it is narrow. In fp16 the sum over rows would pass its largest number, and rare tokens
// fall below its smallest: as for a mean over rows, lifted by 2^10.
double gain_for(at::ScalarType kind, int64_t rows) {
  return kind == at::kHalf ? 1024.0 / static_cast<double>(std::max<int64_t>(1, rows)) : 1.0;
}

void check_inputs(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets) {
  TORCH_CHECK(hidden.dim() == 2 && weight.dim() == 2 && targets.dim() == 1 && hidden.size(1) == weight.size(1) &&
                  hidden.size(0) == targets.size(0),
              "the loss head takes hidden (rows, width), weight (vocabulary, width) and targets (rows), not ",
              hidden.sizes(), ", ", weight.sizes(), " and ", targets.sizes());
  TORCH_CHECK(targets.scalar_type() == at::kLong, "targets must be 64-bit whole numbers");
  TORCH_CHECK(hidden.device() == weight.device() && hidden.device() == targets.device(),
              "hidden, weight and targets must be on one device");
}

struct LossNode final : torch::autograd::Node {
  at::Tensor hidden_gradient;
  at::Tensor weight_gradient;
  // Where its gradient is added without autograd's help.
  at::Tensor weight;
  at::ScalarType hidden_kind = at::kFloat;
  at::ScalarType weight_kind = at::kFloat;
  double gain = 1.0;
  bool released = false;

  std::string name() const override { return "LowtideLoss"; }

  void release_variables() override {
    released = true;
    hidden_gradient.reset();
    weight_gradient.reset();
    weight.reset();
  }

  variable_list apply(variable_list&& gradients) override {
    TORCH_CHECK(!released, "the loss head was asked to run backward a second time after its graph was freed");
    TORCH_CHECK(!at::GradMode::is_enabled(), "the loss head has no second derivative");
    const auto factor = gradients[0] / gain;
    const auto times_factor = [&](const at::Tensor& gradient, at::ScalarType kind) {
      return gradient.defined() ? lowtide::scaled(gradient, factor, kind) : at::Tensor();
    };
    const auto of_hidden = times_factor(hidden_gradient, hidden_kind);
    if (!weight.defined()) return {of_hidden, times_factor(weight_gradient, weight_kind)};
    lowtide::add_scaled(weight, weight_gradient, factor);
    return {of_hidden, at::Tensor()};
  }
};

// Losses of the rows, and where `gain` is not 0 the gradient of their sum, times `gain`, in place of the logits.
at::Tensor rows_loss(at::Tensor& logits, const at::Tensor& targets, double gain) {
  auto losses = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  if (lowtide::cross_entropy_in_place(logits, targets, losses, gain)) return losses;
  const auto kind = logits.scalar_type();
  const auto counted = targets.ne(-100);
  const auto index = targets.where(counted, at::zeros({}, targets.options())).unsqueeze(1);
  auto wide = logits.to(at::kFloat);
  logits.reset();
  const auto log_sum = wide.logsumexp({1}, /*keepdim=*/true);
  losses = (log_sum - wide.gather(1, index)).squeeze(1).mul_(counted);
  if (gain == 0.0) return losses;
  wide.sub_(log_sum).exp_();
  wide.scatter_add_(1, index, at::full({1, 1}, -1.0, wide.options()).expand({wide.size(0), 1}));
  wide.mul_(counted.unsqueeze(1).to(at::kFloat).mul_(gain));
  logits = wide.to(kind);
  return losses;
}

}  // namespace

extern "C" {

// The cross-entropy of `hidden` (n, c) times `weight` (v, c) transposed against `targets` (n), summed over rows; targets of
// -100 do not count. Computed in `chunks` pieces of rows.
Status lt_linear_cross_entropy(at::Tensor* hidden_in, at::Tensor* weight_in, at::Tensor* targets_in, int64_t chunks,
                               at::Tensor** out) noexcept {
  return lowtide::guarded([&] {
    const auto &hidden = *hidden_in, &weight = *weight_in;
    check_inputs(hidden, weight, *targets_in);
    const bool wanted = at::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad());
    auto node = wanted ? std::make_shared<LossNode>() : nullptr;
    if (wanted) node->set_next_edges(torch::autograd::collect_next_edges(hidden, weight));

    at::NoGradGuard no_grad;
    const auto kind = lowtide::product_kind(hidden);
    c10::impl::ExcludeDispatchKeyGuard plain(c10::autocast_dispatch_keyset);
    const auto rows = hidden.to(kind).contiguous();
    const auto columns = lowtide::narrow(weight, kind);
    const bool adds = lowtide::adds_products(weight, kind);
    const auto targets = targets_in->contiguous();
    const int64_t count = rows.size(0);
    const double gain = wanted ? gain_for(kind, count) : 0.0;
    const int64_t step = std::max<int64_t>(1, (count + chunks - 1) / std::max<int64_t>(1, chunks));

    at::Tensor hidden_gradient, weight_gradient;
    if (wanted && hidden.requires_grad()) hidden_gradient = at::empty_like(rows);
    auto total = at::zeros({}, rows.options().dtype(at::kFloat));
    for (int64_t start = 0; start < count; start += step) {
      const auto piece = rows.narrow(0, start, std::min(step, count - start));
      auto logits = lowtide::product(piece, columns.t());
      total += rows_loss(logits, targets.narrow(0, start, piece.size(0)), gain).sum();
      if (hidden_gradient.defined()) {
        auto into = hidden_gradient.narrow(0, start, piece.size(0));
        lowtide::product_into(into, logits, columns);
      }
      if (!wanted || !weight.requires_grad()) continue;
      if (adds) {
        if (weight_gradient.defined()) {
          lowtide::add_product_to(weight_gradient, logits.t(), piece);
        } else {
          weight_gradient = at::mm(logits.t(), piece, at::kFloat);
        }
        continue;
      }
      auto part = at::mm(logits.t(), piece);
      if (step >= count) {
        weight_gradient = part;
      } else if (!weight_gradient.defined()) {
        weight_gradient = part.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
      } else {
        weight_gradient.add_(part);
      }
    }
    if (wanted) {
      node->hidden_gradient = hidden_gradient;
      node->weight_gradient = weight_gradient;
      if (adds && weight_gradient.defined()) node->weight = weight;
      node->hidden_kind = hidden.scalar_type();
      node->weight_kind = weight.scalar_type();
      node->gain = gain;
      torch::autograd::set_history(total, node);
    }
    *out = new at::Tensor(total);
  });
}
}
