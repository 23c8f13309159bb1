#pragma once

#include <cfloat>
#include <cstdint>

#include "cuda/config/cross_entropy.h"
#include "cuda/dispatch.cuh"
#include "cuda/logits.cuh"
#include "cuda/reduce.cuh"
#include "cuda/vector.cuh"
#include "kernels/cross_entropy.h"
#include "tigon/context.h"

// What the kernels of cross_entropy have in common: from the sums over one row to its loss and its
// gradient.
namespace tigon::cuda {

__device__ __forceinline__ float divided(float v, const float* divisor) {
  return divisor == nullptr ? v : v / *divisor;
}

/// Largest x and sum of exp(x - largest), in one reading. The start is finite, so that rows of
/// -Inf need no special care: exp(-Inf - start) is 0, and NaN and +Inf still give NaN.
struct OnlineSum {
  float largest = -FLT_MAX;
  float sum = 0.0F;

  template <int W>
  __device__ __forceinline__ void add(const float (&x)[W]) {
    float m = largest;
#pragma unroll
    for (int i = 0; i < W; ++i) m = fmaxf(m, x[i]);
    if (m > largest) {
      sum *= fast_exp(largest - m);
      largest = m;
    }
#pragma unroll
    for (int i = 0; i < W; ++i) sum += fast_exp(x[i] - largest);
  }
};

/// Sum of the class weights, or their number. All threads must call.
__device__ __forceinline__ float sum_class_weights(const CrossEntropyRows& in,
                                                   RowReduction<>& reduce) {
  float total = 0.0F;
  for (std::int64_t v = threadIdx.x; v < in.cols; v += blockDim.x)
    total += class_weight(in.weight, v);
  return reduce(total, Sum());
}

struct RowLoss {
  float at_label;  // x[label], NaN where there is none
  float largest;
  float log_sum;       // of exp(x - largest)
  float dot;           // sum of w * x, with label smoothing
  float total_weight;  // sum of w, with label smoothing
  float beaten;        // 1 when another class comes before the label

  /// For one thread of the row.
  __device__ __forceinline__ void write(const CrossEntropyForward& p, std::int64_t row,
                                        const Label& label, float label_weight,
                                        float row_weight) const {
    const CrossEntropyRows& in = p.in;
    const float lse = largest + log_sum;
    // lse - x[label] without the cancellation of adding the largest first.
    float loss = (1.0F - in.label_smoothing) * label_weight * (largest - at_label + log_sum);
    if (in.label_smoothing > 0.0F)
      loss += in.label_smoothing / static_cast<float>(in.cols) * (total_weight * lse - dot);
    const float z_loss = in.z_loss * lse * lse;
    const auto put = [&](const RowView& view, float v) {
      if (view) at_row(view, in.rows, row) = label.counts ? v : 0.0F;
    };
    put(p.loss, row_weight * (loss + z_loss));
    put(p.z_loss, row_weight * z_loss);
    put(p.correct, label.known ? 1.0F - beaten : 0.0F);
    put(p.lse, lse);
  }
};

/// dx[v] = factor * (softmax * exp(x[v] - lse) - smooth * w[v] - target * [v = label]), then dz;
/// the factor comes last, for what cancels inside to cancel exactly.
struct Gradient {
  float lse;
  float softmax;
  float smooth;
  float target;
  float factor;

  __device__ __forceinline__ Gradient(const CrossEntropyRows& in, float label_weight,
                                      float total_weight, float row_lse, float row_factor)
      : lse(row_lse) {
    factor = row_factor * in.map.slope();
    target = (1.0F - in.label_smoothing) * label_weight;
    smooth = in.label_smoothing > 0.0F ? in.label_smoothing / static_cast<float>(in.cols) : 0.0F;
    softmax = target + smooth * total_weight + 2.0F * in.z_loss * lse;
  }

  /// From W values of x to their gradients.
  template <int W>
  __device__ __forceinline__ void apply(const CrossEntropyRows& in, std::int64_t label,
                                        std::int64_t col, float (&x)[W]) const {
    const std::int64_t away = label - col;
#pragma unroll
    for (int i = 0; i < W; ++i) {
      float g = softmax * fast_exp(x[i] - lse);
      if (smooth != 0.0F) g -= smooth * class_weight(in.weight, col + i);
      if (i == away) g -= target;
      const float t = x[i] / in.map.outer;
      x[i] = factor * (in.map.inner == 0.0F ? g : g * (1.0F - t * t));
    }
  }
};

/// The threads of a block along one row, or along several where they are short.
template <class Launch>
void launch_rows(const Context& ctx, const RowSpace& rows, std::int64_t cols, const RowView& in,
                 const RowView& out, Launch&& run) {
  if (rows.count == 0) return;
  const bool side_by_side = in.col_stride == 1 && (!out || out.col_stride == 1);
  dispatch(in.dtype, side_by_side, [&]<class T, int N>() {
    const RowLaunch launch = choose_cross_entropy_launch(rows.count, cols, N, sizeof(T));
    run.template operator()<T, N>(
        launch.blocks, dim3(launch.threads_per_row, launch.rows_per_block),
        launch.shared_floats * sizeof(float), static_cast<cudaStream_t>(ctx.stream));
  });
}

/// The forward kernel for plain rows that a block or a cluster of them holds on chip, so that
/// logits are read once and may be overwritten by their gradient. False where they are not plain
/// (a soft cap, a scale that is not positive, class weights with label smoothing, strided columns,
/// several row axes, a gradient that lies otherwise on 16-byte boundaries) or do not fit.
bool launch_held_cross_entropy(const Context& ctx, const CrossEntropyForward& p);

}  // namespace tigon::cuda
