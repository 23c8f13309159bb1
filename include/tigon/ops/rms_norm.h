#pragma once

#include <cstddef>

#include "tigon/context.h"
#include "tigon/tensor.h"

/// Root mean square normalisation over the last axis (Zhang and Sennrich 2019), as the models of
/// Hugging Face transformers write it:
///
///   rstd = 1 / sqrt(mean(x^2) + eps)          fp32, one per row
///   y    = round(x * rstd) * (weight + weight_offset)
///
/// `round` rounds to x's type when round_before_weight (Llama, Qwen, Mistral: LlamaRMSNorm) and
/// does nothing otherwise (Gemma: weight_offset = 1; torch.nn.functional.rms_norm). Sums, rstd and
/// weight + weight_offset are fp32; y is rounded once, to its own type.
///
/// Shapes: x [..., D] with any strides; weight [D] or absent (then 1); y like x; rstd [rows],
/// contiguous float32, rows = product of the leading axes in row-major order.
/// Types: x, y, weight each float32, bfloat16 or float16, independently of one another.
/// Aliasing: outputs overlap nothing. Empty: rows = 0 or D = 0 writes nothing (dweight zeros).
/// Throws tigon::Error before any launch: a shape, type or device that differs from the above,
/// a rank of 0, too little workspace.
namespace tigon {

struct RmsNormOptions {
  float eps = 1e-6F;
  float weight_offset = 0.0F;
  bool round_before_weight = false;
};

/// rstd may be absent when no gradient will be asked for.
void rms_norm_forward(const Context&, const Tensor& x, const Tensor& weight, const RmsNormOptions&,
                      const Tensor& y, const Tensor& rstd);

/// With g = dy * (weight + weight_offset) and xhat = x * rstd:
///
///   dx      = rstd * (g - xhat * mean(g * xhat))
///   dweight = sum over rows of dy * round(xhat)          fixed order, fp32
///
/// dy and dx like x (dy of y's type, any strides; dx of x's type); dweight [D] of weight's type.
/// dx or dweight absent: not computed.
void rms_norm_backward(const Context&, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, const RmsNormOptions&, const Tensor& dx,
                       const Tensor& dweight);

/// Bytes of Context::workspace that rms_norm_backward needs for these tensors.
std::size_t rms_norm_backward_workspace(const Context&, const Tensor& x, const Tensor& dweight);

}  // namespace tigon
