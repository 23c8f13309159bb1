#include "kernels/layer_norm.h"

#include "cuda/columns.cuh"
#include "cuda/config/rows.h"
#include "cuda/device.h"
#include "cuda/dispatch.cuh"
#include "cuda/held_row.cuh"
#include "cuda/norm_backward.cuh"
#include "cuda/reduce.cuh"
#include "cuda/vector.cuh"
#include "kernels/registry.h"

namespace tigon::cuda {
namespace {

__device__ __forceinline__ float row_value(const RowView& view, const RowSpace& rows,
                                           std::int64_t row) {
  return static_cast<const float*>(view.data)[view.offset(rows, row)];
}

template <class T, int N>
__global__ void forward(const LayerNormForward p) {
  extern __shared__ float shared[];
  RowReduction<> reduce(shared);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  const auto n = static_cast<float>(p.cols);
  // Every thread of a block makes the same number of turns: reductions need them all.
  for (std::int64_t first = blockIdx.x * static_cast<std::int64_t>(blockDim.y);
       first < p.rows.count; first += step) {
    const std::int64_t row = first + threadIdx.y;
    const bool active = row < p.rows.count;
    const std::int64_t cols = active ? p.cols : 0;
    const std::int64_t x_at = active ? p.x.offset(p.rows, row) : 0;

    float total = 0.0F;
    for (std::int64_t col = threadIdx.x * N; col < cols; col += blockDim.x * N) {
      float x[N];
      load_as<T>(p.x, x_at + col * p.x.col_stride, x);
#pragma unroll
      for (int i = 0; i < N; ++i) total += x[i];
    }
    const float mean = reduce(total, Sum()) / n;

    // Second and third read: each thread reads what it read before, from L1 or L2.
    float squares = 0.0F;
    for (std::int64_t col = threadIdx.x * N; col < cols; col += blockDim.x * N) {
      float x[N];
      load_as<T>(p.x, x_at + col * p.x.col_stride, x);
#pragma unroll
      for (int i = 0; i < N; ++i) squares += (x[i] - mean) * (x[i] - mean);
    }
    const float variance = reduce(squares, Sum()) / n;
    const float rstd = 1.0F / sqrtf(variance + p.eps);
    if (active && threadIdx.x == 0) {
      if (p.mean) static_cast<float*>(p.mean.data)[p.mean.offset(p.rows, row)] = mean;
      if (p.rstd) static_cast<float*>(p.rstd.data)[p.rstd.offset(p.rows, row)] = rstd;
    }

    const std::int64_t y_at = active ? p.y.offset(p.rows, row) : 0;
    for (std::int64_t col = threadIdx.x * N; col < cols; col += blockDim.x * N) {
      float x[N];
      float w[N];
      float b[N];
      load_as<T>(p.x, x_at + col * p.x.col_stride, x);
      load_or(p.weight, 1.0F, col, w);
      load_or(p.bias, 0.0F, col, b);
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = (x[i] - mean) * rstd * w[i] + b[i];
      store(p.y, y_at + col * p.y.col_stride, x);
    }
  }
}

/// The same for rows that fit registers, lie at one distance, and are of one type.
template <class T, int N>
__global__ void __launch_bounds__(1024) forward_held(const LayerNormForward p) {
  extern __shared__ float shared[];
  RowReduction<> reduce(shared);
  const bool same = p.weight && p.weight.dtype == dtype_of<T> && p.bias &&
                    p.bias.dtype == dtype_of<T>;  // as x, and vectorisable
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  const auto n = static_cast<float>(p.cols);
  for (std::int64_t first = blockIdx.x * static_cast<std::int64_t>(blockDim.y);
       first < p.rows.count; first += step) {
    const std::int64_t row = first + threadIdx.y;
    const int cols = row < p.rows.count ? static_cast<int>(p.cols) : 0;
    HeldRow<T, N> x;
    x.load(row_at<const T>(p.x, row), cols);
    float total = 0.0F;
#pragma unroll
    for (int k = 0; k < kHeldVectors; ++k) {
      float v[N];
      x.get(k, v);
#pragma unroll
      for (int i = 0; i < N; ++i) total += v[i];
    }
    const float mean = reduce(total, Sum()) / n;
    float squares = 0.0F;
    x.visit(cols, [&](int k, int) {
      float v[N];
      x.get(k, v);
#pragma unroll
      for (int i = 0; i < N; ++i) squares += (v[i] - mean) * (v[i] - mean);
    });
    const float variance = reduce(squares, Sum()) / n;
    const float rstd = rsqrtf(variance + p.eps);
    if (threadIdx.x == 0 && cols > 0) {
      if (p.mean) *row_at<float>(p.mean, row) = mean;
      if (p.rstd) *row_at<float>(p.rstd, row) = rstd;
    }
    T* y = row_at<T>(p.y, row);
    x.visit(cols, [&](int k, int col) {
      float v[N];
      float w[N];
      float b[N];
      x.get(k, v);
      if (same) {
        load(static_cast<const T*>(p.weight.data) + col, w);
        load(static_cast<const T*>(p.bias.data) + col, b);
      } else {
        load_or(p.weight, 1.0F, col, w);
        load_or(p.bias, 0.0F, col, b);
      }
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] = (v[i] - mean) * rstd * w[i] + b[i];
      store(y + col, v);
    });
  }
}

template <class T, int N>
__global__ void backward_dx(const LayerNormBackward p) {
  extern __shared__ float shared[];
  RowReduction<> reduce(shared);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  const auto n = static_cast<float>(p.cols);
  for (std::int64_t first = blockIdx.x * static_cast<std::int64_t>(blockDim.y);
       first < p.rows.count; first += step) {
    const std::int64_t row = first + threadIdx.y;
    const bool active = row < p.rows.count;
    const std::int64_t cols = active ? p.cols : 0;
    const std::int64_t x_at = active ? p.x.offset(p.rows, row) : 0;
    const std::int64_t dy_at = active ? p.dy.offset(p.rows, row) : 0;
    const float mean = active ? row_value(p.mean, p.rows, row) : 0.0F;
    const float rstd = active ? row_value(p.rstd, p.rows, row) : 0.0F;

    float sum_g = 0.0F;
    float sum_g_xhat = 0.0F;
    for (std::int64_t col = threadIdx.x * N; col < cols; col += blockDim.x * N) {
      float x[N];
      float g[N];
      float w[N];
      load_as<T>(p.x, x_at + col * p.x.col_stride, x);
      load(p.dy, dy_at + col * p.dy.col_stride, g);
      load_or(p.weight, 1.0F, col, w);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float product = __fmul_rn(g[i], w[i]);
        sum_g += product;
        sum_g_xhat += product * ((x[i] - mean) * rstd);
      }
    }
    const float mean_g = reduce(sum_g, Sum()) / n;
    const float mean_g_xhat = reduce(sum_g_xhat, Sum()) / n;
    if (!active) continue;

    const std::int64_t dx_at = p.dx.offset(p.rows, row);
    for (std::int64_t col = threadIdx.x * N; col < cols; col += blockDim.x * N) {
      float x[N];
      float g[N];
      float w[N];
      load_as<T>(p.x, x_at + col * p.x.col_stride, x);
      load(p.dy, dy_at + col * p.dy.col_stride, g);
      load_or(p.weight, 1.0F, col, w);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        // The product is rounded as in the sum, so that their difference is 0 where D = 1.
        const float centred = __fmul_rn(g[i], w[i]) - mean_g;
        x[i] = rstd * (centred - (x[i] - mean) * rstd * mean_g_xhat);
      }
      store_as<T>(p.dx, dx_at + col * p.dx.col_stride, x);
    }
  }
}

/// dy * xhat and dy, summed over rows: dweight and dbias.
template <class T, int N>
struct ParameterGradients {
  LayerNormBackward p;

  __device__ __forceinline__ void operator()(std::int64_t row, std::int64_t col,
                                             float (&out)[2 * N]) const {
    float x[N] = {};
    float g[N];
    load(p.dy, p.dy.offset(p.rows, row) + col * p.dy.col_stride, g);
    float mean = 0.0F;
    float rstd = 0.0F;
    if (p.dweight) {
      load_as<T>(p.x, p.x.offset(p.rows, row) + col * p.x.col_stride, x);
      mean = row_value(p.mean, p.rows, row);
      rstd = row_value(p.rstd, p.rows, row);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      out[i] = g[i] * ((x[i] - mean) * rstd);
      out[N + i] = g[i];
    }
  }
};

void launch_forward(const Context& ctx, const LayerNormForward& p) {
  if (p.rows.count == 0) return;
  const bool vector = are_vectorisable({&p.x, &p.y, &p.weight, &p.bias}, p.rows, p.cols);
  dispatch(p.x.dtype, vector, [&]<class T, int N>() {
    RowLaunch launch = choose_row_launch(p.rows.count, p.cols, N);
    auto kernel = forward<T, N>;
    if constexpr (N > 1) {
      if (const auto held = held_launch<N>(p.rows, p.cols, {&p.x, &p.y})) {
        launch = *held;
        kernel = forward_held<T, N>;
      }
    }
    kernel<<<launch.blocks, dim3(launch.threads_per_row, launch.rows_per_block),
             launch.shared_floats * sizeof(float), static_cast<cudaStream_t>(ctx.stream)>>>(p);
  });
  check(cudaGetLastError(), "layer_norm_forward");
}

/// False where it does not fit.
template <class T, int N>
bool launch_held(const Context& ctx, const LayerNormBackward& p) {
  NormBackward norm;
  norm.x = p.x;
  norm.dy = p.dy;
  norm.dx = p.dx;
  norm.mean = p.mean;
  norm.rstd = p.rstd;
  norm.weight = p.weight;
  return launch_norm_backward<T, N, true>(ctx, p.rows, p.cols, norm, {&p.x, &p.dy, &p.dx},
                                          static_cast<float*>(ctx.workspace), p.dweight, p.dbias);
}

void launch_backward(const Context& ctx, const LayerNormBackward& p) {
  const bool vector = are_vectorisable({&p.x, &p.dy, &p.dx, &p.weight}, p.rows, p.cols);
  dispatch(p.x.dtype, vector, [&]<class T, int N>() {
    if constexpr (N > 1)
      if (launch_held<T, N>(ctx, p)) return;
    if (p.dx && p.rows.count > 0) {
      const RowLaunch launch = choose_row_launch(p.rows.count, p.cols, N);
      backward_dx<T, N>
          <<<launch.blocks, dim3(launch.threads_per_row, launch.rows_per_block),
             launch.shared_floats * sizeof(float), static_cast<cudaStream_t>(ctx.stream)>>>(p);
    }
    const RowView outs[] = {p.dweight, p.dbias};
    if (p.dweight || p.dbias)
      sum_columns<N>(ctx, p.rows.count, p.cols, ParameterGradients<T, N>{p},
                     static_cast<float*>(ctx.workspace), outs);
  });
  check(cudaGetLastError(), "layer_norm_backward");
}

std::size_t backward_workspace(const Context& ctx, const LayerNormBackward& p) {
  if (!p.dweight && !p.dbias) return 0;
  const std::int64_t partials = norm_backward_partials(p.rows.count, p.cols, ctx.device.index);
  return 2 * std::max(column_workspace(p.rows.count, p.cols, ctx.device.index),
                      static_cast<std::size_t>(partials) * sizeof(float));
}

const RegisterKernel<LayerNormForward> kForward(DeviceType::cuda, {.launch = launch_forward});
const RegisterKernel<LayerNormBackward> kBackward(DeviceType::cuda,
                                                  {.launch = launch_backward,
                                                   .workspace = backward_workspace});

}  // namespace
}  // namespace tigon::cuda
