#pragma once

#include <cstddef>

#include "tigon/context.h"
#include "tigon/tensor.h"

/// A weight per column: the smallest operator that has every part (paper or model code goes here).
///
///   y = x * weight          fp32 inside, one rounding to y's type
///
/// Shapes: x [..., D] with any strides; weight [D]; y like x.
/// Types: x and y one type, weight any; each float32, bfloat16 or float16.
/// Aliasing: outputs overlap nothing. Empty: rows = 0 or D = 0 writes nothing (dweight zeros).
/// Throws tigon::Error before any launch: a shape, type or device that differs from the above,
/// a rank of 0, too little workspace.
namespace tigon {

void skeleton_forward(const Context&, const Tensor& x, const Tensor& weight, const Tensor& y);

///   dx      = dy * weight
///   dweight = sum over rows of dy * x          fixed order, fp32
///
/// dy and dx like x (dy with any strides); dweight [D] of weight's type, contiguous.
/// dx or dweight absent: not computed.
void skeleton_backward(const Context&, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& dx, const Tensor& dweight);

/// Bytes of Context::workspace that skeleton_backward needs for these tensors.
std::size_t skeleton_backward_workspace(const Context&, const Tensor& x, const Tensor& dweight);

}  // namespace tigon
