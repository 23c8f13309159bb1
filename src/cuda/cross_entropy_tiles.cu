#include <algorithm>

#include "cuda/cross_entropy.cuh"
#include "cuda/device.h"
#include "cuda/logits.cuh"
#include "cuda/reduce.cuh"
#include "cuda/sweep.cuh"
#include "kernels/registry.h"

// Losses of rows whose columns come a tile at a time.
namespace tigon::cuda {
namespace {

template <class T, int N>
__global__ void __launch_bounds__(1024) add_tile(const CrossEntropyTile p) {
  extern __shared__ float shared[];
  RowReduction<> reduce(shared);
  const CrossEntropyRows& in = p.in;
  const CrossEntropyStatistics& all = p.statistics;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  // Every thread of a block makes the same number of turns: reductions need them all.
  for (std::int64_t first = blockIdx.x * static_cast<std::int64_t>(blockDim.y);
       first < in.rows.count; first += step) {
    const std::int64_t row = first + threadIdx.y;
    const bool active = row < in.rows.count;
    const Label label(in, row, active);
    const T* z = active ? row_of<const T>(in.logits, in.rows, row) : nullptr;

    OnlineSum online;
    float before = -INFINITY;
    float dot = 0.0F;
    RowSweep<T, N>(z, label.counts ? p.tile.cols : 0).visit([&](auto width, std::int64_t col) {
      float x[width.value];
      load_logits(in, z, col, x);
      online.add(x);
      const std::int64_t v = p.tile.first + col;
      if (all.before) {
#pragma unroll
        for (int i = 0; i < width.value; ++i)
          if (v + i < label.value) before = fmaxf(before, x[i]);
      }
      if (all.dot) {
#pragma unroll
        for (int i = 0; i < width.value; ++i) dot += class_weight(in.weight, v + i) * x[i];
      }
    });
    const float largest = reduce(online.largest, Max());
    const float scaled = online.sum * fast_exp(online.largest - largest);
    const float sum = reduce(scaled, Sum());
    if (all.before) before = reduce(before, Max());
    if (all.dot) dot = reduce(dot, Sum());
    if (!label.counts || threadIdx.x != 0) continue;

    const bool starts = p.tile.first == 0;
    const auto old = [&](const RowView& view, float start) {
      return starts ? start : at_row(view, in.rows, row);
    };
    const float old_largest = old(all.largest, -FLT_MAX);
    const float top = fmaxf(old_largest, largest);
    const float old_sum = old(all.sum, 0.0F) * fast_exp(old_largest - top);
    at_row(all.sum, in.rows, row) = old_sum + sum * fast_exp(largest - top);
    at_row(all.largest, in.rows, row) = top;
    if (all.before) at_row(all.before, in.rows, row) = fmaxf(old(all.before, -INFINITY), before);
    if (all.dot) at_row(all.dot, in.rows, row) = old(all.dot, 0.0F) + dot;
    float at_label[1] = {old(all.at_label, NAN)};
    const std::int64_t away = label.value - p.tile.first;
    if (label.known && away >= 0 && away < p.tile.cols) load_logits(in, z, away, at_label);
    at_row(all.at_label, in.rows, row) = at_label[0];
  }
}

constexpr int kFinishThreads = 256;

/// A thread per row.
__global__ void __launch_bounds__(kFinishThreads) finish(const CrossEntropyFinish p) {
  __shared__ float shared[RowReduction<>::kFloats * kFinishThreads / kWarp];
  RowReduction<> reduce(shared);
  const CrossEntropyRows& in = p.results.in;
  const CrossEntropyStatistics& all = p.statistics;
  const float total_weight = in.label_smoothing > 0.0F ? sum_class_weights(in, reduce) : 0.0F;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kFinishThreads;
  for (std::int64_t row = blockIdx.x * std::int64_t{kFinishThreads} + threadIdx.x;
       row < in.rows.count; row += step) {
    const Label label(in, row, true);
    const auto get = [&](const RowView& view) {
      return view && label.counts ? at_row(view, in.rows, row) : 0.0F;
    };
    const float at_label = get(all.at_label);
    const float largest = get(all.largest);
    const bool beaten = largest > at_label || get(all.before) == at_label;
    const RowLoss loss{at_label,     largest,      logf(get(all.sum)),
                       get(all.dot), total_weight, beaten ? 1.0F : 0.0F};
    const float label_weight = label.known ? class_weight(in.weight, label.value) : NAN;
    const RowView& row_weight = p.results.row_weight;
    loss.write(p.results, row, label, label_weight,
               row_weight ? at_row(row_weight, in.rows, row) : 1.0F);
  }
}

void launch_tile(const Context& ctx, const CrossEntropyTile& p) {
  const CrossEntropyRows& in = p.in;
  launch_rows(
      ctx, in.rows, p.tile.cols, in.logits, {},
      [&]<class T, int N>(unsigned blocks, dim3 threads, std::size_t shared, cudaStream_t stream) {
        add_tile<T, N><<<blocks, threads, shared, stream>>>(p);
      });
  check(cudaGetLastError(), "cross_entropy_tile");
}

void launch_finish(const Context& ctx, const CrossEntropyFinish& p) {
  const std::int64_t rows = p.results.in.rows.count;
  if (rows == 0) return;
  const std::int64_t blocks =
      std::min<std::int64_t>((rows + kFinishThreads - 1) / kFinishThreads, 1024);
  finish<<<static_cast<unsigned>(blocks), kFinishThreads, 0,
           static_cast<cudaStream_t>(ctx.stream)>>>(p);
  check(cudaGetLastError(), "cross_entropy_finish");
}

const RegisterKernel<CrossEntropyTile> kTile(DeviceType::cuda, {.launch = launch_tile});
const RegisterKernel<CrossEntropyFinish> kFinish(DeviceType::cuda, {.launch = launch_finish});

}  // namespace
}  // namespace tigon::cuda
