#pragma once

#include <cstddef>
#include <cstdint>

#include "tigon/context.h"
#include "tigon/tensor.h"

/// Cross entropy of logits and integer labels over the last axis. For a row z [V] with label y:
///
///   x    = logit_scale * z,  then  softcap * tanh(x / softcap)  where softcap > 0
///   lse  = log(sum exp(x))
///   loss = (1 - label_smoothing) * w[y] * (lse - x[y])
///        + label_smoothing / V * sum over v of w[v] * (lse - x[v])  +  z_loss * lse^2
///
/// with w the class weights (ones when absent); all of it float32. A row whose label is
/// ignore_index has loss 0, gradient 0, and its logits are not read. Rows are summed in a fixed
/// order; the mean divides by the sum of w[y] over the rows that count (their number without class
/// weights), as PyTorch does, and is NaN when there are none.
///
/// Shapes: logits [..., V] and labels [...] with any strides, V >= 1; weight [V] or absent.
/// Types: logits float32, bfloat16 or float16; weight any of these; labels int64 or int32.
/// Labels outside [0, V) that are not ignore_index: the CPU throws, naming value and row. CUDA,
/// where the host does not see them, reads nothing out of range and makes that row's loss and
/// gradient NaN (hence a mean or sum too).
/// Aliasing: outputs overlap nothing, unless said below.
/// Throws tigon::Error before any launch: a shape, type or device that differs from the above, an
/// option out of its range, too little workspace.
namespace tigon {

enum class Reduction : std::uint8_t { none, mean, sum };

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;
  float label_smoothing = 0.0F;  ///< In [0, 1].
  float z_loss = 0.0F;           ///< >= 0; not multiplied by class weights.
  float softcap = 0.0F;          ///< 0: none.
  float logit_scale = 1.0F;
  Reduction reduction = Reduction::mean;
};

/// What the forward direction may be asked for; all float32 but dlogits. Per row where reduction is
/// none (contiguous, shaped like labels), else one element each.
struct CrossEntropyOutputs {
  Tensor loss;            ///< Must be present.
  Tensor z_loss;          ///< The part of loss that is z_loss * lse^2.
  Tensor token_accuracy;  ///< 1 where the label is the first of the largest logits, else 0; mean of
                          ///< it over the rows that count for both mean and sum.
  Tensor lse;             ///< [rows] always; 0 in ignored rows. Backward needs it.
  Tensor divisor;         ///< [1], what the mean divides by; reduction must be mean.
  Tensor dlogits;         ///< Like logits, any strides: the gradient of `loss` (of the sum of the
                          ///< rows' losses when reduction is none). May be logits itself.
};

void cross_entropy_forward(const Context&, const Tensor& logits, const Tensor& labels,
                           const Tensor& weight, const CrossEntropyOptions&,
                           const CrossEntropyOutputs&);

/// Bytes of Context::workspace that cross_entropy_forward needs for these tensors.
std::size_t cross_entropy_forward_workspace(const Context&, const Tensor& logits,
                                            const CrossEntropyOptions&, const CrossEntropyOutputs&);

/// dlogits = dloss * d loss / d logits from the saved lse (and divisor, when reduction is mean),
/// multiplied in float32 and rounded once:
///
///   dx[v] = p[v] * (mass + 2 * z_loss * lse) - label_smoothing / V * w[v]
///         - (1 - label_smoothing) * w[y] * [v = y],                   p = exp(x - lse)
///   mass  = (1 - label_smoothing) * w[y] + label_smoothing / V * sum of w
///
/// dloss float32: shaped like labels with any strides when reduction is none, else one element.
/// Rows with an ignored label are 0 whatever dloss is. dlogits may be logits itself.
void cross_entropy_backward(const Context&, const Tensor& dloss, const Tensor& logits,
                            const Tensor& labels, const Tensor& weight, const Tensor& lse,
                            const Tensor& divisor, const CrossEntropyOptions&,
                            const Tensor& dlogits);

/// out = dloss * dlogits for a gradient that forward made and a dloss [1] that is not known to be
/// 1: rows with an ignored label stay 0 even where dloss is Inf or NaN. out may be dlogits, and
/// then nothing is touched when dloss is 1.
void cross_entropy_scale(const Context&, const Tensor& dloss, const Tensor& dlogits,
                         const Tensor& labels, std::int64_t ignore_index, const Tensor& out);

}  // namespace tigon
