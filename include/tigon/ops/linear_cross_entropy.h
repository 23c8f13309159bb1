#pragma once

#include <cstddef>
#include <cstdint>

#include "tigon/context.h"
#include "tigon/ops/cross_entropy.h"
#include "tigon/tensor.h"

/// Cross entropy of a linear head, whose logits exist a part at a time only, unless all of them
/// take no more memory than sums over the parts would:
///
///   logits = round(x @ weight^T + bias)            in x's type, fp32 inside, one rounding
///   loss   = cross_entropy(logits, labels)         formula and options: tigon/ops/cross_entropy.h
///
/// Rows with an ignored label are left out before the products and cost nothing; on CUDA the host
/// waits for their number (not while a CUDA graph is being captured: then all rows are computed).
///
/// Shapes: x [..., H] with any strides; weight [V, H], a matrix or its transpose; bias [V] or
/// absent; labels [...] int64 or int32; class_weight [V] or absent; token_weights float32 like
/// labels, any strides, or absent: multiplies a row's loss, z_loss and gradient and does not enter
/// the mean's divisor; num_items one float32 or absent: replaces the mean's divisor. V, H >= 1.
/// Types: x float32, bfloat16 or float16; weight x's; bias and class_weight any of these.
/// Labels out of range: as cross_entropy. Aliasing: outputs overlap nothing.
/// Throws tigon::Error before any launch: a shape, type or device that differs from the above (an
/// empty weight is named as the ZeRO-3 or FSDP shard it usually is), an option out of its range,
/// too little workspace.
namespace tigon {

/// What a linear head saves: time, or memory, with the same rounding points either way.
enum class HeadMemory { fast, low };

struct LinearCrossEntropyInputs {
  Tensor x, weight, bias, labels, class_weight, token_weights, num_items;
};

struct LinearCrossEntropyOptions {
  CrossEntropyOptions loss;
  /// Partial sums of dweight over chunks: float32 (V * H * 4 bytes of workspace for 16-bit
  /// weights), or in dweight itself, rounded at every chunk.
  bool sum_in_float32 = true;
  /// low: least memory. Logits come in smaller chunks of rows; or, where those would need float32
  /// sums of dweight, in tiles of columns: dweight is then written once, its memory holds logits
  /// until it is, and those that do not fit are computed twice. Workspace beside a chunk or tile of
  /// logits, with tiles: a float32 sum of dx where it is wanted (T * H * 4 bytes), and the rows of
  /// x that count where some do not and dx has no room for them (T * H of x's type).
  HeadMemory memory = HeadMemory::fast;
  /// Rows of logits held at a time, or in tiles as many logits as so many rows have; 0: chosen by
  /// size and device.
  std::int64_t chunk_rows = 0;
};

/// What forward may be asked for. loss, z_loss, token_accuracy, lse, divisor as CrossEntropyOutputs
/// has them. The gradients are those of `loss` (of the sum of the rows' losses when reduction is
/// none), made in the same visit: one product for the logits, one for each of dx and dweight.
struct LinearCrossEntropyOutputs {
  Tensor loss;  ///< Must be present.
  Tensor z_loss, token_accuracy, lse, divisor;
  Tensor dx;       ///< Like x, of its type, any strides; 0 in ignored rows.
  Tensor dweight;  ///< [V, H] contiguous, of weight's type.
  Tensor dbias;    ///< [V] contiguous, of bias's type.
};

void linear_cross_entropy_forward(const Context&, const LinearCrossEntropyInputs&,
                                  const LinearCrossEntropyOptions&,
                                  const LinearCrossEntropyOutputs&);

/// Bytes of Context::workspace that forward needs for these tensors.
std::size_t linear_cross_entropy_forward_workspace(const Context&, const LinearCrossEntropyInputs&,
                                                   const LinearCrossEntropyOptions&,
                                                   const LinearCrossEntropyOutputs&);

/// The gradients of sum over rows of dloss * row loss / divisor, from the saved lse; the logits are
/// computed again. dloss float32 like labels with any strides, or one element for all rows; divisor
/// one float32 or absent (1). token_weights and num_items are not read: they are the caller's to
/// multiply into dloss.
struct LinearCrossEntropyGradients {
  Tensor dx, dweight, dbias;  ///< As in LinearCrossEntropyOutputs; absent: not computed.
};

void linear_cross_entropy_backward(const Context&, const Tensor& dloss,
                                   const LinearCrossEntropyInputs&, const Tensor& lse,
                                   const Tensor& divisor, const LinearCrossEntropyOptions&,
                                   const LinearCrossEntropyGradients&);

std::size_t linear_cross_entropy_backward_workspace(const Context&, const LinearCrossEntropyInputs&,
                                                    const LinearCrossEntropyOptions&,
                                                    const LinearCrossEntropyGradients&);

/// out = dloss * gradient, for a gradient that forward made and a dloss [1] float32 that is not
/// known to be 1. What is 0 stays 0 even where dloss is Inf or NaN. out may be the gradient, and
/// then nothing is touched when dloss is 1.
void linear_cross_entropy_scale(const Context&, const Tensor& dloss, const Tensor& gradient,
                                const Tensor& out);

}  // namespace tigon
