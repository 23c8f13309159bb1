#include "kernels/cross_entropy.h"

#include <algorithm>

#include "cuda/cross_entropy.cuh"
#include "cuda/device.h"
#include "cuda/reduce.cuh"
#include "cuda/sweep.cuh"
#include "kernels/registry.h"

namespace tigon::cuda {
namespace {

// --- one row ------------------------------------------------------------------------------------

template <class T, int N>
__device__ __forceinline__ void write_gradient(const CrossEntropyRows& in, const ColumnTile& tile,
                                               const Gradient& g, const Label& label, const T* z,
                                               const RowView& dlogits, T* out) {
  const bool together = same_alignment(z, out);
  RowSweep<T, N>(z, tile.cols).reverse([&](auto width, std::int64_t col) {
    float x[width.value];
    load_logits(in, z, col, x);
    g.apply(in, label.value, tile.first + col, x);
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
    write_gradient<T, N>(in, {0, in.cols}, g, label, z, p.dlogits, out);
  }
}

template <class T, int N>
__global__ void __launch_bounds__(1024) backward(const CrossEntropyBackward p) {
  extern __shared__ float shared[];
  RowReduction<> reduce(shared);
  const CrossEntropyRows& in = p.in;
  const float total_weight = in.label_smoothing > 0.0F ? sum_class_weights(in, reduce) : 0.0F;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t row = blockIdx.x * static_cast<std::int64_t>(blockDim.y) + threadIdx.y;
       row < in.rows.count; row += step) {
    const Label label(in, row, true);
    T* out = row_of<T>(p.dlogits, in.rows, row);
    if (!label.counts) {
      write_zeros<T, N>(p.dlogits, out, p.tile.cols);
      continue;
    }
    const float label_weight = label.known ? class_weight(in.weight, label.value) : NAN;
    const float dloss = p.dloss ? at_row(p.dloss, in.rows, row) : 1.0F;
    const float lse = at_row(p.lse, in.rows, row);
    const Gradient g(in, label_weight, total_weight, lse, divided(dloss, p.divisor));
    const T* z = row_of<const T>(in.logits, in.rows, row);
    write_gradient<T, N>(in, p.tile, g, label, z, p.dlogits, out);
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
      ctx, in.rows, p.tile.cols, in.logits, p.dlogits,
      [&]<class T, int N>(unsigned blocks, dim3 threads, std::size_t shared, cudaStream_t stream) {
        backward<T, N><<<blocks, threads, shared, stream>>>(p);
      });
  check(cudaGetLastError(), "cross_entropy_backward");
}

void launch_scale(const Context& ctx, const CrossEntropyScale& p) {
  launch_rows(ctx, p.rows, p.cols, p.dlogits, p.out,
              [&]<class T, int N>(unsigned blocks, dim3 threads, std::size_t, cudaStream_t stream) {
                // Mostly there is nothing to do: few blocks find that out soonest.
                const unsigned few = 4 * static_cast<unsigned>(multiprocessors(ctx.device.index));
                scale<T, N><<<std::min(blocks, few), threads, 0, stream>>>(p);
              });
  check(cudaGetLastError(), "cross_entropy_scale");
}

const RegisterKernel<CrossEntropyForward> kForward(DeviceType::cuda, {.launch = launch_forward});
const RegisterKernel<CrossEntropyBackward> kBackward(DeviceType::cuda, {.launch = launch_backward});
const RegisterKernel<CrossEntropyScale> kScale(DeviceType::cuda, {.launch = launch_scale});

}  // namespace
}  // namespace tigon::cuda
