#pragma once

#include <cstddef>
#include <cstdint>

#include "tigon/context.h"
#include "tigon/tensor.h"

/// Log-probabilities of labels under a linear head, and other statistics of each token's
/// distribution, from logits that exist for a chunk of rows at a time only:
///
///   z = round(x @ weight^T + bias)                          in x's type, fp32 inside, one rounding
///   u = logit_scale * z,  then  softcap * tanh(u / softcap)  where softcap > 0
///   p = softmax(u / temperature)                            fp32, as are the results:
///
///   log_probs        = log p[label]
///   entropy          = - sum p log p                        0 log 0 = 0
///   log_sum_sq_probs = log(sum p^2)
///   mean_logits      = mean over the vocabulary of u / temperature
///   is_top1          = 1 where the label is the first of the largest logits, else 0
///
/// Rows with an ignored label are left out before the products and are 0 in every result; on CUDA
/// the host waits for the number of the others (not while a CUDA graph is being captured: then all
/// rows are computed).
///
/// Shapes: x [..., H] with any strides; weight [V, H], a matrix or its transpose; bias [V] or
/// absent; labels [...] int64 or int32, any strides; V, H >= 1. Results like labels, contiguous.
/// Types: x float32, bfloat16 or float16; weight x's; bias any of these.
/// Labels outside [0, V) that are not ignore_index: the CPU throws, naming value and row; CUDA
/// gives NaN for that row's log_probs and gradient, and is_top1 0. Aliasing: outputs overlap
/// nothing. Throws tigon::Error before any launch: a shape, type or device that differs from the
/// above (an empty weight is named as the ZeRO-3 or FSDP shard it usually is), an option out of its
/// range, too little workspace.
namespace tigon {

struct LinearLogProbInputs {
  Tensor x, weight, bias, labels;
};

struct LinearLogProbOptions {
  std::int64_t ignore_index = -100;
  float temperature = 1.0F;  ///< > 0.
  float softcap = 0.0F;      ///< 0: none.
  float logit_scale = 1.0F;
  std::int64_t chunk_rows = 0;  ///< Rows of logits held at a time; 0: chosen by size and device.
};

/// float32, absent: not wanted. lse is log(sum exp(u / temperature)), which backward needs.
struct LinearLogProbOutputs {
  Tensor lse, log_probs, entropy, log_sum_sq_probs, mean_logits, is_top1;
};

void linear_logprob_forward(const Context&, const LinearLogProbInputs&, const LinearLogProbOptions&,
                            const LinearLogProbOutputs&);

std::size_t linear_logprob_forward_workspace(const Context&, const LinearLogProbInputs&,
                                             const LinearLogProbOptions&,
                                             const LinearLogProbOutputs&);

/// What arrives at backward: the gradients of the results, float32 like labels with any strides,
/// absent where none arrived; and what forward saved, entropy and log_sum_sq_probs only where
/// theirs arrived.
struct LinearLogProbUpstream {
  Tensor dlog_probs, dentropy, dlog_sum_sq_probs, dmean_logits;
  Tensor lse, entropy, log_sum_sq_probs;
};

/// Absent: not computed. dx like x, any strides, 0 in ignored rows; dweight, dbias contiguous;
/// each of its input's type. Partial sums of dweight over chunks are float32.
struct LinearLogProbGradients {
  Tensor dx, dweight, dbias;
};

/// The logits are computed again; for each row, with upstream gradients a, h, s, m in the order
/// above and l = log p:
///
///   d / d(u/temperature)[v] = a [v = label] + m / V
///                             - p[v] (a + h (l[v] + entropy) + 2 s - 2 s p[v] / sum p^2)
void linear_logprob_backward(const Context&, const LinearLogProbUpstream&,
                             const LinearLogProbInputs&, const LinearLogProbOptions&,
                             const LinearLogProbGradients&);

std::size_t linear_logprob_backward_workspace(const Context&, const LinearLogProbInputs&,
                                              const LinearLogProbOptions&,
                                              const LinearLogProbGradients&);

}  // namespace tigon
