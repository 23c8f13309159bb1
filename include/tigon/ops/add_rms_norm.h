#pragma once

#include <cstddef>

#include "tigon/context.h"
#include "tigon/ops/rms_norm.h"
#include "tigon/tensor.h"

/// Residual addition and the norm that follows it, in one pass over memory:
///
///   sum = round(x + residual)       the new residual stream, in x's type
///   y   = rms_norm(sum)             formula, options and types: tigon/ops/rms_norm.h
///
/// Shapes: x, residual, sum, y [..., D], x and residual with any strides and one type; weight [D]
/// or absent; rstd [rows] float32, absent when no gradient will be asked for.
/// Throws tigon::Error as rms_norm does.
namespace tigon {

void add_rms_norm_forward(const Context&, const Tensor& x, const Tensor& residual,
                          const Tensor& weight, const RmsNormOptions&, const Tensor& y,
                          const Tensor& sum, const Tensor& rstd);

/// dsum is the gradient that reached `sum` by other ways (absent: none). The gradient of x and
/// the gradient of residual are the same tensor:
///
///   dx = dsum + [dx of rms_norm at sum]       dweight as rms_norm's
void add_rms_norm_backward(const Context&, const Tensor& dy, const Tensor& dsum, const Tensor& sum,
                           const Tensor& weight, const Tensor& rstd, const RmsNormOptions&,
                           const Tensor& dx, const Tensor& dweight);

std::size_t add_rms_norm_backward_workspace(const Context&, const Tensor& sum,
                                            const Tensor& dweight);

}  // namespace tigon
