#pragma once

#include "tigon/context.h"
#include "tigon/tensor.h"

/// The gated activation of Llama's MLP (Shazeer 2020):
///
///   y = silu(gate) * up          silu(x) = x / (1 + exp(-x))
///
/// fp32 inside, y is rounded once. (PyTorch code rounds silu(gate) to its type before the product.)
///
/// Shapes: gate, up, y [..., I]. up absent: gate is packed, [..., 2 I], the gate in the first half
/// of the last axis and up in the second, as one fused projection gives them.
/// Types: float32, bfloat16 or float16, the same for all. Strides: any.
/// Aliasing: outputs overlap nothing, but dgate may be gate, and dup up. Empty: nothing is written.
/// NaN and Inf as the formula: silu(-inf) is NaN, as in PyTorch.
/// Throws tigon::Error before any launch: a shape, type or device that differs from the above,
/// a packed gate whose last axis is odd.
namespace tigon {

void swiglu_forward(const Context&, const Tensor& gate, const Tensor& up, const Tensor& y);

/// Recomputes from the inputs, with s = 1 / (1 + exp(-gate)):
///
///   dgate = dy * up * s * (1 + gate * (1 - s))       dup = dy * silu(gate)
///
/// dy like y; dgate like gate, dup like up. up absent: dgate is packed as gate is, and dup absent.
/// dgate or dup absent: not computed.
void swiglu_backward(const Context&, const Tensor& dy, const Tensor& gate, const Tensor& up,
                     const Tensor& dgate, const Tensor& dup);

}  // namespace tigon
