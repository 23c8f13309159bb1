#pragma once

#include <cstddef>

#include "tigon/context.h"
#include "tigon/tensor.h"

/// Layer normalisation over the last axis (Ba, Kiros and Hinton 2016), as
/// torch.nn.functional.layer_norm computes it:
///
///   mean = mean(x)      rstd = 1 / sqrt(mean((x - mean)^2) + eps)      fp32, one each per row
///   y    = (x - mean) * rstd * weight + bias
///
/// The variance is summed over deviations from the mean, never as mean(x^2) - mean^2. All of it is
/// fp32; y is rounded once, to its own type.
///
/// Shapes: x [..., D] with any strides; weight and bias [D], each may be absent (then 1 and 0);
/// y like x; mean and rstd [rows], contiguous float32, rows = product of the leading axes in
/// row-major order.
/// Types: x, y, weight, bias each float32, bfloat16 or float16, independently of one another.
/// Aliasing: outputs overlap nothing. Empty: rows = 0 or D = 0 writes nothing (dweight, dbias
/// zeros).
/// Throws tigon::Error before any launch: a shape, type or device that differs from the above,
/// a rank of 0, too little workspace.
namespace tigon {

struct LayerNormOptions {
  float eps = 1e-5F;
};

/// mean and rstd may be absent when no gradient will be asked for.
void layer_norm_forward(const Context&, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const LayerNormOptions&, const Tensor& y, const Tensor& mean,
                        const Tensor& rstd);

/// With g = dy * weight and xhat = (x - mean) * rstd:
///
///   dx      = rstd * (g - mean(g) - xhat * mean(g * xhat))
///   dweight = sum over rows of dy * xhat                       fixed order, fp32
///   dbias   = sum over rows of dy                              fixed order, fp32
///
/// dy and dx like x (dy of y's type, any strides; dx of x's type); dweight [D] of weight's type;
/// dbias [D], floating. Absent outputs are not computed.
void layer_norm_backward(const Context&, const Tensor& dy, const Tensor& x, const Tensor& weight,
                         const Tensor& mean, const Tensor& rstd, const Tensor& dx,
                         const Tensor& dweight, const Tensor& dbias);

/// Bytes of Context::workspace that layer_norm_backward needs for these tensors.
std::size_t layer_norm_backward_workspace(const Context&, const Tensor& x, const Tensor& dweight,
                                          const Tensor& dbias);

}  // namespace tigon
