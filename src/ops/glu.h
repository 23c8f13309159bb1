#pragma once

#include "kernels/glu.h"
#include "tigon/context.h"
#include "tigon/tensor.h"

namespace tigon {

/// The checks and views of a gated activation, whatever the activation: see tigon/ops/swiglu.h.
/// The kernels never learn whether gate and up came in one tensor or in two.
GluForward glu_forward(const char* op, const Context&, const Tensor& gate, const Tensor& up,
                       const Tensor& y);
GluBackward glu_backward(const char* op, const Context&, const Tensor& dy, const Tensor& gate,
                         const Tensor& up, const Tensor& dgate, const Tensor& dup);

}  // namespace tigon
