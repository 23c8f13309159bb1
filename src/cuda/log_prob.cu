#include "kernels/log_prob.h"

#include <cfloat>

#include "cuda/config/rows.h"
#include "cuda/device.h"
#include "cuda/dispatch.cuh"
#include "cuda/logits.cuh"
#include "cuda/reduce.cuh"
#include "cuda/sweep.cuh"
#include "kernels/registry.h"

namespace tigon::cuda {
namespace {

/// Sums over exp(x - largest) of what a thread has read. The start is finite, so that -Inf gives 0
/// and NaN and +Inf give NaN.
struct Moments {
  float largest = -FLT_MAX;
  float sum = 0.0F;       // e
  float weighted = 0.0F;  // e * (x - largest)
  float squares = 0.0F;   // e^2

  /// The same sums about a larger value.
  __device__ __forceinline__ void shift_to(float m) {
    const float by = largest - m;
    const float factor = __expf(by);
    weighted = factor == 0.0F ? 0.0F : factor * (weighted + by * sum);
    sum *= factor;
    squares *= factor * factor;
    largest = m;
  }

  template <int W>
  __device__ __forceinline__ void add(const float (&x)[W]) {
    float m = largest;
#pragma unroll
    for (int i = 0; i < W; ++i) m = fmaxf(m, x[i]);
    if (m > largest) shift_to(m);
#pragma unroll
    for (int i = 0; i < W; ++i) {
      const float e = __expf(x[i] - largest);
      sum += e;
      weighted += e == 0.0F ? 0.0F : e * (x[i] - largest);
      squares += e * e;
    }
  }
};

template <class T, int N>
__global__ void __launch_bounds__(1024) forward(const LogProbForward p) {
  extern __shared__ float shared[];
  RowReduction<> reduce(shared);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  // Every thread of a block makes the same number of turns: reductions need them all.
  for (std::int64_t first = blockIdx.x * static_cast<std::int64_t>(blockDim.y);
       first < p.rows.count; first += step) {
    const std::int64_t row = first + threadIdx.y;
    const bool active = row < p.rows.count;
    const Label label(p, row, active);
    const T* z = active ? row_of<const T>(p.logits, p.rows, row) : nullptr;
    float at_label[1] = {NAN};
    if (label.known) load_logits(p, z, label.value, at_label);
    Moments moments;
    float total = 0.0F;   // of x
    float beaten = 0.0F;  // 1 when another class comes before the label
    RowSweep<T, N>(z, label.counts ? p.cols : 0).visit([&](auto width, std::int64_t col) {
      float x[width.value];
      load_logits(p, z, col, x);
      moments.add(x);
#pragma unroll
      for (int i = 0; i < width.value; ++i) {
        total += x[i];
        if (x[i] > at_label[0] || (x[i] == at_label[0] && col + i < label.value)) beaten = 1.0F;
      }
    });
    moments.shift_to(reduce(moments.largest, Max()));
    const float sum = reduce(moments.sum, Sum());
    const float log_sum = logf(sum);
    float entropy = 0.0F;
    float log_sum_sq = 0.0F;
    if (p.entropy) entropy = log_sum - reduce(moments.weighted, Sum()) / sum;
    if (p.log_sum_sq_probs) log_sum_sq = logf(reduce(moments.squares, Sum())) - 2.0F * log_sum;
    if (p.mean_logit) total = reduce(total, Sum());
    if (p.is_top1) beaten = reduce(beaten, Max());
    if (!active || threadIdx.x > 0) continue;
    const auto put = [&](const RowView& view, float v) {
      if (view) at_row(view, p.rows, row) = label.counts ? v : 0.0F;
    };
    put(p.lse, moments.largest + log_sum);
    put(p.log_prob, at_label[0] - moments.largest - log_sum);
    put(p.entropy, entropy);
    put(p.log_sum_sq_probs, log_sum_sq);
    put(p.mean_logit, total / static_cast<float>(p.cols));
    put(p.is_top1, label.known ? 1.0F - beaten : 0.0F);
  }
}

/// For the probabilities q and the incoming gradients a, h, s, m of log_prob, entropy,
/// log_sum_sq_probs and mean_logit:
///
///   dx = a * [v = label] + m / V - q * (a + h * (log q + entropy) + 2 s - 2 s * q / sum q^2)
template <class T, int N>
__global__ void __launch_bounds__(1024) backward(const LogProbBackward p) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t row = blockIdx.x * static_cast<std::int64_t>(blockDim.y) + threadIdx.y;
       row < p.rows.count; row += step) {
    const Label label(p, row, true);
    T* out = row_of<T>(p.dlogits, p.rows, row);
    if (!label.counts) {
      write_zeros<T, N>(p.dlogits, out, p.cols);
      continue;
    }
    const auto get = [&](const RowView& view) { return view ? at_row(view, p.rows, row) : 0.0F; };
    const float a = label.known ? get(p.dlog_prob) : NAN;
    const float h = get(p.dentropy);
    const float s = get(p.dlog_sum_sq_probs);
    const float entropy = get(p.entropy);
    const float squares = p.dlog_sum_sq_probs ? 2.0F * s * expf(-get(p.log_sum_sq_probs)) : 0.0F;
    const float mean = get(p.dmean_logit) / static_cast<float>(p.cols);
    const float lse = get(p.lse);
    const float slope = p.map.slope();
    const T* z = row_of<const T>(p.logits, p.rows, row);
    const bool together = same_alignment(z, out);
    RowSweep<T, N>(z, p.cols).visit([&](auto width, std::int64_t col) {
      float x[width.value];
      load_logits(p, z, col, x);
#pragma unroll
      for (int i = 0; i < width.value; ++i) {
        const float log_q = x[i] - lse;
        const float q = __expf(log_q);
        const float f = a + 2.0F * s + h * (log_q + entropy) - squares * q;
        float g = mean - (q == 0.0F ? 0.0F : q * f);
        if (col + i == label.value) g += a;
        const float t = x[i] / p.map.outer;
        x[i] = g * slope * (p.map.inner == 0.0F ? 1.0F : 1.0F - t * t);
      }
      store_at(p.dlogits, out, col, together, x);
    });
  }
}

void launch_forward(const Context& ctx, const LogProbForward& p) {
  if (p.rows.count == 0) return;
  dispatch(p.logits.dtype, p.logits.col_stride == 1, [&]<class T, int N>() {
    const RowLaunch launch = choose_row_launch(p.rows.count, p.cols, N);
    forward<T, N>
        <<<launch.blocks, dim3(launch.threads_per_row, launch.rows_per_block),
           launch.shared_floats * sizeof(float), static_cast<cudaStream_t>(ctx.stream)>>>(p);
  });
  check(cudaGetLastError(), "log_prob_forward");
}

void launch_backward(const Context& ctx, const LogProbBackward& p) {
  if (p.rows.count == 0) return;
  const bool side_by_side = p.logits.col_stride == 1 && p.dlogits.col_stride == 1;
  dispatch(p.logits.dtype, side_by_side, [&]<class T, int N>() {
    const RowLaunch launch = choose_row_launch(p.rows.count, p.cols, N);
    backward<T, N><<<launch.blocks, dim3(launch.threads_per_row, launch.rows_per_block), 0,
                     static_cast<cudaStream_t>(ctx.stream)>>>(p);
  });
  check(cudaGetLastError(), "log_prob_backward");
}

const RegisterKernel<LogProbForward> kForward(DeviceType::cuda, {.launch = launch_forward});
const RegisterKernel<LogProbBackward> kBackward(DeviceType::cuda, {.launch = launch_backward});

}  // namespace
}  // namespace tigon::cuda
