// What the products of a model share.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace lowtide {

// Whether the gradient of what is learned may be added to the one that it has, without autograd's help.
bool takes_sums(const at::Tensor& learned);

// A weight in the kind of products: the copy that is kept, where there is one.
at::Tensor narrow(const at::Tensor& weight, at::ScalarType kind);

// The copy of a weight that is kept, for whoever changes the weight; undefined where there is none.
at::Tensor kept_narrow(const at::Tensor& weight);

// A weight was changed and its copy with it: it needs no refreshing this time.
void narrow_is_fresh(const at::Tensor& weight);

// `x` times `weight` transposed, plus `bias`.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

// Whether a weight's gradient is added up by the functions below while products are made in this kind.
bool adds_products(const at::Tensor& weight, at::ScalarType kind);

// Adds a product to a weight's gradient, in fp32.
void add_product(const at::Tensor& weight, const at::Tensor& left, const at::Tensor& right);

// Adds `values` times the one number `factor` to a weight's gradient, in fp32.
void add_scaled(const at::Tensor& weight, const at::Tensor& values, const at::Tensor& factor);

}  // namespace lowtide
