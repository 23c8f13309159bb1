#include "kernels/cross_entropy.h"

#include <cfloat>

#include "cuda/config/cross_entropy.h"
#include "cuda/cross_entropy.cuh"
#include "cuda/device.h"
#include "cuda/dispatch.cuh"
#include "cuda/logits.cuh"
#include "cuda/reduce.cuh"
#include "cuda/sweep.cuh"
#include "kernels/registry.h"

namespace tigon::cuda {
namespace {

// --- one row ------------------------------------------------------------------------------------

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

template <class T, int N>
__device__ __forceinline__ void write_gradient(const CrossEntropyRows& in, const Gradient& g,
                                               const Label& label, const T* z,
                                               const RowView& dlogits, T* out) {
  const bool together = same_alignment(z, out);
  RowSweep<T, N>(z, in.cols).reverse([&](auto width, std::int64_t col) {
    float x[width.value];
    load_logits(in, z, col, x);
    g.apply(in, label.value, col, x);
    store_at(dlogits, out, col, together, x);
  });
}

// --- kernels ------------------------------------------------------------------------------------

template <class T, int N>
__global__ void __launch_bounds__(1024) forward(const CrossEntropyForward p) {
  extern __shared__ float shared[];
  RowReduction<> reduce(shared);
  const CrossEntropyRows& in = p.in;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  // Every thread of a block makes the same number of turns: reductions need them all.
  for (std::int64_t first = blockIdx.x * static_cast<std::int64_t>(blockDim.y);
       first < in.rows.count; first += step) {
    const std::int64_t row = first + threadIdx.y;
    const bool active = row < in.rows.count;
    const Label label(in, row, active);
    const T* z = active ? row_of<const T>(in.logits, in.rows, row) : nullptr;
    float at_label[1] = {NAN};
    if (label.known) load_logits(in, z, label.value, at_label);

    OnlineSum online;
    float dot = 0.0F;           // sum of w * x
    float total_weight = 0.0F;  // sum of w
    float beaten = 0.0F;        // 1 when another class comes before the label
    RowSweep<T, N>(z, label.counts ? in.cols : 0).visit([&](auto width, std::int64_t col) {
      float x[width.value];
      load_logits(in, z, col, x);
      online.add(x);
      if (in.label_smoothing > 0.0F) {
#pragma unroll
        for (int i = 0; i < width.value; ++i) {
          const float w = class_weight(in.weight, col + i);
          dot += w * x[i];
          total_weight += w;
        }
      }
      if (p.correct) {
#pragma unroll
        for (int i = 0; i < width.value; ++i)
          if (x[i] > at_label[0] || (x[i] == at_label[0] && col + i < label.value)) beaten = 1.0F;
      }
    });
    __syncwarp();  // the logit of the label is read before any thread overwrites it

    const float largest = reduce(online.largest, Max());
    const float scaled = online.sum * fast_exp(online.largest - largest);
    const float log_sum = logf(reduce(scaled, Sum()));
    const float lse = largest + log_sum;
    if (in.label_smoothing > 0.0F) {
      dot = reduce(dot, Sum());
      total_weight = reduce(total_weight, Sum());
    }
    if (p.correct) beaten = reduce(beaten, Max());
    if (!active) continue;

    const float label_weight = label.known ? class_weight(in.weight, label.value) : NAN;
    const float row_weight = p.row_weight ? at_row(p.row_weight, in.rows, row) : 1.0F;
    const RowLoss row_loss{at_label[0], largest, log_sum, dot, total_weight, beaten};
    if (threadIdx.x == 0) row_loss.write(p, row, label, label_weight, row_weight);
    if (!p.dlogits) continue;
    T* out = row_of<T>(p.dlogits, in.rows, row);
    if (!label.counts) {
      write_zeros<T, N>(p.dlogits, out, in.cols);
      continue;
    }
    const Gradient g(in, label_weight, total_weight, lse, divided(row_weight, p.divisor));
    write_gradient<T, N>(in, g, label, z, p.dlogits, out);
  }
}

template <class T, int N>
__global__ void __launch_bounds__(1024) backward(const CrossEntropyBackward p) {
  extern __shared__ float shared[];
  RowReduction<> reduce(shared);
  const CrossEntropyRows& in = p.in;
  float total_weight = 0.0F;
  if (in.label_smoothing > 0.0F) {
    for (std::int64_t v = threadIdx.x; v < in.cols; v += blockDim.x)
      total_weight += class_weight(in.weight, v);
    total_weight = reduce(total_weight, Sum());
  }
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t row = blockIdx.x * static_cast<std::int64_t>(blockDim.y) + threadIdx.y;
       row < in.rows.count; row += step) {
    const Label label(in, row, true);
    T* out = row_of<T>(p.dlogits, in.rows, row);
    if (!label.counts) {
      write_zeros<T, N>(p.dlogits, out, in.cols);
      continue;
    }
    const float label_weight = label.known ? class_weight(in.weight, label.value) : NAN;
    const float dloss = at_row(p.dloss, in.rows, row);
    const float lse = at_row(p.lse, in.rows, row);
    const Gradient g(in, label_weight, total_weight, lse, divided(dloss, p.divisor));
    write_gradient<T, N>(in, g, label, row_of<const T>(in.logits, in.rows, row), p.dlogits, out);
  }
}

template <class T, int N>
__global__ void __launch_bounds__(1024) scale(const CrossEntropyScale p) {
  const float factor = *p.dloss;
  if (factor == 1.0F && p.out.data == p.dlogits.data) return;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t row = blockIdx.x * static_cast<std::int64_t>(blockDim.y) + threadIdx.y;
       row < p.rows.count; row += step) {
    const T* in = row_of<const T>(p.dlogits, p.rows, row);
    T* out = row_of<T>(p.out, p.rows, row);
    if (load_integer(p.labels, p.labels.offset(p.rows, row)) == p.ignore_index) {
      write_zeros<T, N>(p.out, out, p.cols);
      continue;
    }
    const bool together = same_alignment(in, out);
    RowSweep<T, N>(in, p.cols).visit([&](auto width, std::int64_t col) {
      float g[width.value];
      load(in + col * p.dlogits.col_stride, g);
#pragma unroll
      for (int i = 0; i < width.value; ++i) g[i] *= factor;
      store_at(p.out, out, col, together, g);
    });
  }
}

// --- launches -----------------------------------------------------------------------------------

/// One or more blocks' worth of threads along a row, several rows per block where they are short.
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

void launch_forward(const Context& ctx, const CrossEntropyForward& p) {
  if (launch_held_cross_entropy(ctx, p)) return;
  const CrossEntropyRows& in = p.in;
  launch_rows(
      ctx, in.rows, in.cols, in.logits, p.dlogits,
      [&]<class T, int N>(unsigned blocks, dim3 threads, std::size_t shared, cudaStream_t stream) {
        forward<T, N><<<blocks, threads, shared, stream>>>(p);
      });
  check(cudaGetLastError(), "cross_entropy_forward");
}

void launch_backward(const Context& ctx, const CrossEntropyBackward& p) {
  const CrossEntropyRows& in = p.in;
  launch_rows(
      ctx, in.rows, in.cols, in.logits, p.dlogits,
      [&]<class T, int N>(unsigned blocks, dim3 threads, std::size_t shared, cudaStream_t stream) {
        backward<T, N><<<blocks, threads, shared, stream>>>(p);
      });
  check(cudaGetLastError(), "cross_entropy_backward");
}

void launch_scale(const Context& ctx, const CrossEntropyScale& p) {
  launch_rows(ctx, p.rows, p.cols, p.dlogits, p.out,
              [&]<class T, int N>(unsigned blocks, dim3 threads, std::size_t, cudaStream_t stream) {
                scale<T, N><<<blocks, threads, 0, stream>>>(p);
              });
  check(cudaGetLastError(), "cross_entropy_scale");
}

const RegisterKernel<CrossEntropyForward> kForward(DeviceType::cuda, {.launch = launch_forward});
const RegisterKernel<CrossEntropyBackward> kBackward(DeviceType::cuda, {.launch = launch_backward});
const RegisterKernel<CrossEntropyScale> kScale(DeviceType::cuda, {.launch = launch_scale});

}  // namespace
}  // namespace tigon::cuda
