#pragma once

#include "cuda/config/glu.h"
#include "cuda/device.h"
#include "cuda/dispatch.cuh"
#include "cuda/vector.cuh"
#include "kernels/glu.h"
#include "tigon/context.h"

// Gated activations: the kernels of swiglu and geglu. An activation is a small object with
// value(x) = act(x) and slope(x, y): y = act(x), returns act'(x).
namespace tigon::cuda {

/// Calls body(row, col) for the first columns of all vectors that this thread has of a tile, then
/// the next tile. Bodies of one tile are unrolled, so that their loads overlap.
template <int N, class Body>
__device__ __forceinline__ void for_each_tile(std::int64_t rows, std::int64_t cols,
                                              std::int64_t tiles, Body body) {
  const std::int64_t groups = (rows + blockDim.y - 1) / blockDim.y;
  for (std::int64_t block = blockIdx.x; block < tiles * groups; block += gridDim.x) {
    const std::int64_t group = block / tiles;
    const std::int64_t row = group * blockDim.y + threadIdx.y;
    const std::int64_t first = (block - group * tiles) * kGluVectors * blockDim.x + threadIdx.x;
    if (row < rows) body(row, first * N);
  }
}

template <class T, int N, class Act>
__global__ void glu_forward(const GluForward p, const std::int64_t tiles, const Act act) {
  for_each_tile<N>(p.rows.count, p.cols, tiles, [&](std::int64_t row, std::int64_t first) {
    const std::int64_t gate_at = p.gate.offset(p.rows, row);
    const std::int64_t up_at = p.up.offset(p.rows, row);
    const std::int64_t y_at = p.y.offset(p.rows, row);
    float gate[kGluVectors][N];
    float up[kGluVectors][N];
#pragma unroll
    for (int v = 0; v < kGluVectors; ++v) {
      const std::int64_t col = first + v * blockDim.x * N;
      if (col >= p.cols) break;
      load_as<T>(p.gate, gate_at + col * p.gate.col_stride, gate[v]);
      load_as<T>(p.up, up_at + col * p.up.col_stride, up[v]);
    }
#pragma unroll
    for (int v = 0; v < kGluVectors; ++v) {
      const std::int64_t col = first + v * blockDim.x * N;
      if (col >= p.cols) break;
#pragma unroll
      for (int i = 0; i < N; ++i) gate[v][i] = act.value(gate[v][i]) * up[v][i];
      store_as<T>(p.y, y_at + col * p.y.col_stride, gate[v]);
    }
  });
}

template <class T, int N, class Act>
__global__ void glu_backward(const GluBackward p, const std::int64_t tiles, const Act act) {
  for_each_tile<N>(p.rows.count, p.cols, tiles, [&](std::int64_t row, std::int64_t first) {
    const std::int64_t dy_at = p.dy.offset(p.rows, row);
    const std::int64_t gate_at = p.gate.offset(p.rows, row);
    const std::int64_t up_at = p.up.offset(p.rows, row);
    float dy[kGluVectors][N];
    float gate[kGluVectors][N];
    float up[kGluVectors][N];
#pragma unroll
    for (int v = 0; v < kGluVectors; ++v) {
      const std::int64_t col = first + v * blockDim.x * N;
      if (col >= p.cols) break;
      load_as<T>(p.dy, dy_at + col * p.dy.col_stride, dy[v]);
      load_as<T>(p.gate, gate_at + col * p.gate.col_stride, gate[v]);
      load_as<T>(p.up, up_at + col * p.up.col_stride, up[v]);
    }
#pragma unroll
    for (int v = 0; v < kGluVectors; ++v) {
      const std::int64_t col = first + v * blockDim.x * N;
      if (col >= p.cols) break;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        float y;
        const float slope = act.slope(gate[v][i], y);
        gate[v][i] = dy[v][i] * up[v][i] * slope;
        up[v][i] = dy[v][i] * y;
      }
      if (p.dgate)
        store_as<T>(p.dgate, p.dgate.offset(p.rows, row) + col * p.dgate.col_stride, gate[v]);
      if (p.dup) store_as<T>(p.dup, p.dup.offset(p.rows, row) + col * p.dup.col_stride, up[v]);
    }
  });
}

template <class Act>
void launch_glu_forward(const Context& ctx, const char* op, const GluForward& p, Act act) {
  if (p.rows.count == 0 || p.cols == 0) return;
  const bool vectorised = are_vectorisable({&p.gate, &p.up, &p.y}, p.rows, p.cols);
  dispatch(p.y.dtype, vectorised, [&]<class T, int N>() {
    const GluLaunch launch = choose_glu_launch(p.rows.count, p.cols, N);
    glu_forward<T, N><<<launch.blocks, dim3(launch.threads_per_row, launch.rows_per_block), 0,
                        static_cast<cudaStream_t>(ctx.stream)>>>(p, launch.tiles, act);
  });
  check(cudaGetLastError(), op);
}

template <class Act>
void launch_glu_backward(const Context& ctx, const char* op, const GluBackward& p, Act act) {
  if (p.rows.count == 0 || p.cols == 0 || (!p.dgate && !p.dup)) return;
  const bool vectorised =
      are_vectorisable({&p.dy, &p.gate, &p.up, &p.dgate, &p.dup}, p.rows, p.cols);
  dispatch(p.dy.dtype, vectorised, [&]<class T, int N>() {
    const GluLaunch launch = choose_glu_launch(p.rows.count, p.cols, N);
    glu_backward<T, N><<<launch.blocks, dim3(launch.threads_per_row, launch.rows_per_block), 0,
                         static_cast<cudaStream_t>(ctx.stream)>>>(p, launch.tiles, act);
  });
  check(cudaGetLastError(), op);
}

}  // namespace tigon::cuda
