#pragma once

#include <cstdint>

#include "tigon/context.h"
#include "tigon/tensor.h"

/// Rotary position embedding (Su et al. 2021) of q and k in one pass, as the models of Hugging
/// Face transformers apply it. The first R of D features of each head are rotated in pairs
/// (a, b), the others copied:
///
///   y[a] = x[a] * cos[a] - x[b] * sin[a]
///   y[b] = x[b] * cos[b] + x[a] * sin[b]
///
/// Pairs are (i, i + R / 2) (Llama: rotate_half), or neighbours (2 i, 2 i + 1) when interleaved
/// (Cohere, GLM). fp32 inside, y is rounded once, to its own type.
///
/// cos and sin hold either one value per feature, [.., R], laid out like the features: halves side
/// by side for Llama (`cat((freqs, freqs))`), neighbours for Cohere (`repeat_interleave(freqs,
/// 2)`); the two values of a pair need not be equal. Or one value per pair, [.., R / 2], with
/// rotary_dim given: gpt-oss; and GLM, Helium and Ernie 4.5, which interleave but whose tables are
/// `cat((freqs, freqs))`: pass their first half, a view.
///
/// Shapes: q [B, Hq, T, D], k [B, Hk, T, D] or absent, Hq and Hk independent; [B, T, H, D] when
/// unsqueeze_dim is 2. cos and sin [T, W] or [1 or B, T, W], W = R or R / 2; with position_ids
/// [1 or B, T] (int32, int64) they are tables [P, W], of which the rows named are taken.
/// Outputs like q and k. Strides: any, each tensor its own.
/// Types: q, k and outputs one of float32, bfloat16, float16; cos and sin one of these, too.
/// Aliasing: outputs overlap nothing. Empty: nothing is written.
/// A position outside [0, P): throws on CPU; on CUDA that token becomes NaN, nothing is read.
/// Throws tigon::Error before any launch: a shape, type or device that differs from the above.
namespace tigon {

struct RopeOptions {
  bool interleaved = false;
  std::int64_t unsqueeze_dim = 1;  ///< The axis of heads, which cos and sin lack: 1 or 2.
  std::int64_t rotary_dim = 0;     ///< R; 0: the width of cos.
};

void rope_forward(const Context&, const Tensor& q, const Tensor& k, const Tensor& cos,
                  const Tensor& sin, const Tensor& position_ids, const RopeOptions&,
                  const Tensor& q_out, const Tensor& k_out);

/// The transpose: with gradients dy of the outputs (as q and k: any strides, k's may be absent),
///
///   dx[a] = dy[a] * cos[a] + dy[b] * sin[b]
///   dx[b] = dy[b] * cos[b] - dy[a] * sin[a]
///
/// There is no gradient for cos and sin.
void rope_backward(const Context&, const Tensor& dq_out, const Tensor& dk_out, const Tensor& cos,
                   const Tensor& sin, const Tensor& position_ids, const RopeOptions&,
                   const Tensor& dq, const Tensor& dk);

}  // namespace tigon
