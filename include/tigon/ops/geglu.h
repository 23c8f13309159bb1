#pragma once

#include <cstdint>

#include "tigon/context.h"
#include "tigon/tensor.h"

/// The gated activation of Gemma's MLP (Shazeer 2020):
///
///   y = gelu(gate) * up          gelu(x) = x * P(X <= x), X standard normal
///
/// exactly (PyTorch's approximate="none": the erf form), or with the tanh approximation
/// gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) (approximate="tanh").
/// fp32 inside, y is rounded once. (PyTorch code rounds gelu(gate) to its type before the product.)
///
/// Shapes: gate, up, y [..., I]. up absent: gate is packed, [..., 2 I], the gate in the first half
/// of the last axis and up in the second, as one fused projection gives them.
/// Types: float32, bfloat16 or float16, the same for all. Strides: any.
/// Aliasing: outputs overlap nothing. Empty: nothing is written.
/// NaN and Inf as the formula: gelu(inf) is inf, gelu(-inf) is NaN.
/// Throws tigon::Error before any launch: a shape, type or device that differs from the above,
/// a packed gate whose last axis is odd.
namespace tigon {

enum class Gelu : std::uint8_t { erf, tanh };

void geglu_forward(const Context&, const Tensor& gate, const Tensor& up, Gelu, const Tensor& y);

/// Recomputes from the inputs:
///
///   dgate = dy * up * gelu'(gate)       dup = dy * gelu(gate)
///
/// dy like y; dgate like gate, dup like up. up absent: dgate is packed as gate is, and dup absent.
/// dgate or dup absent: not computed.
void geglu_backward(const Context&, const Tensor& dy, const Tensor& gate, const Tensor& up, Gelu,
                    const Tensor& dgate, const Tensor& dup);

}  // namespace tigon
