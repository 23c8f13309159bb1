#pragma once

#include "tigon/context.h"
#include "tigon/tensor.h"

/// Softmax over the last axis, as torch.softmax(x, -1) computes it:
///
///   y = exp(x - max(x)) / sum(exp(x - max(x)))        fp32 inside, one rounding at the end
///
/// An entry of -inf gives 0; a row of -inf alone, or with a NaN or +inf in it, gives NaN.
///
/// Shapes: x [..., D] and y like it, any strides. Types: x and y each float32, bfloat16 or
/// float16. Aliasing: outputs overlap nothing. Empty: rows = 0 or D = 0 writes nothing.
/// Throws tigon::Error before any launch: a shape, type or device that differs from the above, a
/// rank of 0.
namespace tigon {

void softmax_forward(const Context&, const Tensor& x, const Tensor& y);

/// dx = y * (dy - sum(dy * y)), from the output alone. dy, y and dx are of one shape, any strides
/// and types.
void softmax_backward(const Context&, const Tensor& dy, const Tensor& y, const Tensor& dx);

}  // namespace tigon
