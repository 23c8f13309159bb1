#pragma once

#include "cuda/config/glu.h"
#include "cuda/device.h"
#include "cuda/dispatch.cuh"
#include "cuda/vector.cuh"
#include "kernels/glu.h"
#include "tigon/context.h"

// Gated activations: the kernels of swiglu and geglu. An activation is a small object with
// value<rough>(x) = act(x) and slope<rough>(x, y): y = act(x), returns act'(x).
namespace tigon::cuda {

/// 1 / (1 + exp(-x)): the hardware's reciprocal, where a division takes ten instructions. 0 below
/// -87, where the exact value is under 2^-126. To 4 ulp, or rough: to |x| + 4, for results in 16
/// bits.
template <bool kRough>
__device__ __forceinline__ float logistic(float x) {
  return __fdividef(1.0F, 1.0F + (kRough ? fast_exp(-x) : expf(-x)));
}

template <class T>
inline constexpr bool kRough = sizeof(T) == 2;

/// Calls body(row, col) with the first column of the tile that this thread has part of, for one row
/// after another: blockIdx.x is the tile, blockIdx.y the first group of rows.
template <int N, class Body>
__device__ __forceinline__ void for_each_row(std::int64_t rows, Body body) {
  const std::int64_t first =
      (std::int64_t{blockIdx.x} * kGluVectors * blockDim.x + threadIdx.x) * N;
  const std::int64_t step = std::int64_t{gridDim.y} * blockDim.y;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows;
       row += step)
    body(row, first);
}

template <class T, int N, class Act>
__global__ void __launch_bounds__(256) glu_forward(const GluForward p, const Act act) {
  for_each_row<N>(p.rows.count, [&](std::int64_t row, std::int64_t first) {
    const T* gate_row = row_of<const T>(p.gate, p.rows, row);
    const T* up_row = row_of<const T>(p.up, p.rows, row);
    T* y_row = row_of<T>(p.y, p.rows, row);
    Vector<T, N> gates[kGluVectors];
    Vector<T, N> ups[kGluVectors];
#pragma unroll
    for (int v = 0; v < kGluVectors; ++v) {
      const std::int64_t col = first + v * blockDim.x * N;
      if (col >= p.cols) break;
      gates[v].load(gate_row + along<N>(p.gate, col));
      ups[v].load(up_row + along<N>(p.up, col));
    }
#pragma unroll
    for (int v = 0; v < kGluVectors; ++v) {
      const std::int64_t col = first + v * blockDim.x * N;
      if (col >= p.cols) break;
      float gate[N];
      float up[N];
      gates[v].get(gate);
      ups[v].get(up);
#pragma unroll
      for (int i = 0; i < N; ++i) gate[i] = act.template value<kRough<T>>(gate[i]) * up[i];
      store(y_row + along<N>(p.y, col), gate);
    }
  });
}

template <class T, int N, class Act>
__global__ void __launch_bounds__(256) glu_backward(const GluBackward p, const Act act) {
  for_each_row<N>(p.rows.count, [&](std::int64_t row, std::int64_t first) {
    const T* dy_row = row_of<const T>(p.dy, p.rows, row);
    const T* gate_row = row_of<const T>(p.gate, p.rows, row);
    const T* up_row = row_of<const T>(p.up, p.rows, row);
    Vector<T, N> dys[kGluVectors];
    Vector<T, N> gates[kGluVectors];
    Vector<T, N> ups[kGluVectors];
#pragma unroll
    for (int v = 0; v < kGluVectors; ++v) {
      const std::int64_t col = first + v * blockDim.x * N;
      if (col >= p.cols) break;
      dys[v].load(dy_row + along<N>(p.dy, col));
      gates[v].load(gate_row + along<N>(p.gate, col));
      ups[v].load(up_row + along<N>(p.up, col));
    }
#pragma unroll
    for (int v = 0; v < kGluVectors; ++v) {
      const std::int64_t col = first + v * blockDim.x * N;
      if (col >= p.cols) break;
      float dy[N];
      float gate[N];
      float up[N];
      dys[v].get(dy);
      gates[v].get(gate);
      ups[v].get(up);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        float y;
        const float slope = act.template slope<kRough<T>>(gate[i], y);
        gate[i] = dy[i] * up[i] * slope;
        up[i] = dy[i] * y;
      }
      if (p.dgate) store(row_of<T>(p.dgate, p.rows, row) + along<N>(p.dgate, col), gate);
      if (p.dup) store(row_of<T>(p.dup, p.rows, row) + along<N>(p.dup, col), up);
    }
  });
}

template <class Act>
void launch_glu_forward(const Context& ctx, const char* op, const GluForward& p, Act act) {
  if (p.rows.count == 0 || p.cols == 0) return;
  const bool vectorised = are_vectorisable({&p.gate, &p.up, &p.y}, p.rows, p.cols);
  dispatch(p.y.dtype, vectorised, [&]<class T, int N>() {
    const GluLaunch launch = choose_glu_launch(p.rows.count, p.cols, N);
    glu_forward<T, N>
        <<<dim3(launch.tiles, launch.groups), dim3(launch.threads_per_row, launch.rows_per_block),
           0, static_cast<cudaStream_t>(ctx.stream)>>>(p, act);
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
    glu_backward<T, N>
        <<<dim3(launch.tiles, launch.groups), dim3(launch.threads_per_row, launch.rows_per_block),
           0, static_cast<cudaStream_t>(ctx.stream)>>>(p, act);
  });
  check(cudaGetLastError(), op);
}

}  // namespace tigon::cuda
