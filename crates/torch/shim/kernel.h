// The kernels of the loss head.
#pragma once

#include <ATen/core/Tensor.h>

namespace lowtide {

// Turns logits (rows, vocabulary) into the gradient of the summed cross-entropy, in place and times `gain`, and writes the
// loss of each row. With `gain` 0 the logits stay. Returns false, having done nothing, where there is no such kernel: not
// on a GPU, another kind of number, or no run-time compiler.
bool cross_entropy_in_place(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& losses, double gain);

// `values` times the one number `factor`, in a kind of number. Computed in fp32 where that is narrow: a narrow factor would take the
// digits from all values alike.
at::Tensor scaled(const at::Tensor& values, const at::Tensor& factor, at::ScalarType kind);

}  // namespace lowtide
