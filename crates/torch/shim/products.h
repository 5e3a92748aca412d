// Products of narrow matrices on a GPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace lowtide {

// `left` times `right`, plus `bias` to each row where it is defined: by the fastest program that cuBLASLt has for the two on this card,
// where the choice may depend on a clock; else, and where none is faster, as LibTorch does it.
at::Tensor product(const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias = at::Tensor());

// The same, into a tensor that is there.
void product_into(at::Tensor& out, const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias = at::Tensor());

// Adds `left` times `right`, which are narrow, to `sum` in fp32.
void add_product_to(at::Tensor& sum, const at::Tensor& left, const at::Tensor& right);

}  // namespace lowtide
