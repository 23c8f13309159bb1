#include "kernels/softmax.h"

#include "cuda/config/rows.h"
#include "cuda/device.h"
#include "cuda/dispatch.cuh"
#include "cuda/held_row.cuh"
#include "cuda/reduce.cuh"
#include "cuda/vector.cuh"
#include "kernels/registry.h"

namespace tigon::cuda {
namespace {

/// Sum of exp(x - max) over values seen one after another: a larger value rescales the sum.
struct OnlineSum {
  float max = -INFINITY;
  float sum = 0.0F;

  template <int N>
  __device__ __forceinline__ void add(const float (&x)[N]) {
    float top = max;
#pragma unroll
    for (int i = 0; i < N; ++i) top = fmaxf(top, x[i]);
    sum *= expf(max - base(top));
#pragma unroll
    for (int i = 0; i < N; ++i) sum += expf(x[i] - base(top));
    max = top;
  }

  /// -inf - -inf is NaN: what has seen nothing but -inf sums exp(-inf - 0) = 0 instead.
  static __device__ __forceinline__ float base(float top) { return top == -INFINITY ? 0.0F : top; }
};

template <class T, int N>
__global__ void forward(const SoftmaxForward p) {
  extern __shared__ float shared[];
  RowReduction<> reduce(shared);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  // Every thread of a block makes the same number of turns: reductions need them all.
  for (std::int64_t first = blockIdx.x * static_cast<std::int64_t>(blockDim.y);
       first < p.rows.count; first += step) {
    const std::int64_t row = first + threadIdx.y;
    const bool active = row < p.rows.count;
    const std::int64_t cols = active ? p.cols : 0;
    const std::int64_t x_at = active ? p.x.offset(p.rows, row) : 0;

    OnlineSum online;
    for (std::int64_t col = threadIdx.x * N; col < cols; col += blockDim.x * N) {
      float x[N];
      load_as<T>(p.x, x_at + col * p.x.col_stride, x);
      online.add(x);
    }
    const float max = reduce(online.max, Max());
    const float part = online.sum * expf(online.max - OnlineSum::base(max));
    const float scale = 1.0F / reduce(part, Sum());

    // Second read: each thread reads what it read before, from L1 or L2. Here a row of -inf alone
    // becomes NaN, by exp(-inf - -inf).
    const std::int64_t y_at = active ? p.y.offset(p.rows, row) : 0;
    for (std::int64_t col = threadIdx.x * N; col < cols; col += blockDim.x * N) {
      float x[N];
      load_as<T>(p.x, x_at + col * p.x.col_stride, x);
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = expf(x[i] - max) * scale;
      store(p.y, y_at + col * p.y.col_stride, x);
    }
  }
}

/// e^v, exact enough for a T.
template <class T>
__device__ __forceinline__ float exponential(float v) {
  return std::is_same_v<T, float> ? expf(v) : fast_exp(v);
}

/// The same for rows that fit registers, lie at one distance, and are of one type.
template <class T, int N>
__global__ void __launch_bounds__(1024) forward_held(const SoftmaxForward p) {
  extern __shared__ float shared[];
  RowReduction<> reduce(shared);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t first = blockIdx.x * static_cast<std::int64_t>(blockDim.y);
       first < p.rows.count; first += step) {
    const std::int64_t row = first + threadIdx.y;
    const int cols = row < p.rows.count ? static_cast<int>(p.cols) : 0;
    HeldRow<T, N> x;
    x.load(row_at<const T>(p.x, row), cols, -INFINITY);
    float max = x.held[0].max();
#pragma unroll
    for (int k = 1; k < kHeldVectors; ++k) max = fmaxf(max, x.held[k].max());
    max = reduce(max, Max());

    float e[kHeldVectors][N];
    float sum = 0.0F;
#pragma unroll
    for (int k = 0; k < kHeldVectors; ++k) {
      x.get(k, e[k]);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        e[k][i] = exponential<T>(e[k][i] - max);
        sum += e[k][i];
      }
    }
    const float scale = 1.0F / reduce(sum, Sum());
    T* y = row_at<T>(p.y, row);
    x.visit(cols, [&](int k, int col) {
#pragma unroll
      for (int i = 0; i < N; ++i) e[k][i] *= scale;
      store(y + col, e[k]);
    });
  }
}

template <class T, int N>
__global__ void backward(const SoftmaxBackward p) {
  extern __shared__ float shared[];
  RowReduction<> reduce(shared);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t first = blockIdx.x * static_cast<std::int64_t>(blockDim.y);
       first < p.rows.count; first += step) {
    const std::int64_t row = first + threadIdx.y;
    const bool active = row < p.rows.count;
    const std::int64_t cols = active ? p.cols : 0;
    const std::int64_t y_at = active ? p.y.offset(p.rows, row) : 0;
    const std::int64_t dy_at = active ? p.dy.offset(p.rows, row) : 0;

    float dot = 0.0F;
    for (std::int64_t col = threadIdx.x * N; col < cols; col += blockDim.x * N) {
      float y[N];
      float g[N];
      load_as<T>(p.y, y_at + col * p.y.col_stride, y);
      load(p.dy, dy_at + col * p.dy.col_stride, g);
#pragma unroll
      for (int i = 0; i < N; ++i) dot += g[i] * y[i];
    }
    dot = reduce(dot, Sum());
    const std::int64_t dx_at = active ? p.dx.offset(p.rows, row) : 0;
    for (std::int64_t col = threadIdx.x * N; col < cols; col += blockDim.x * N) {
      float y[N];
      float g[N];
      load_as<T>(p.y, y_at + col * p.y.col_stride, y);
      load(p.dy, dy_at + col * p.dy.col_stride, g);
#pragma unroll
      for (int i = 0; i < N; ++i) y[i] *= g[i] - dot;
      store(p.dx, dx_at + col * p.dx.col_stride, y);
    }
  }
}

template <class T, int N>
__global__ void __launch_bounds__(1024) backward_held(const SoftmaxBackward p) {
  extern __shared__ float shared[];
  RowReduction<> reduce(shared);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t first = blockIdx.x * static_cast<std::int64_t>(blockDim.y);
       first < p.rows.count; first += step) {
    const std::int64_t row = first + threadIdx.y;
    const int cols = row < p.rows.count ? static_cast<int>(p.cols) : 0;
    HeldRow<T, N> y;
    HeldRow<T, N> dy;
    y.load(row_at<const T>(p.y, row), cols);
    dy.load(row_at<const T>(p.dy, row), cols);
    float dot = 0.0F;
#pragma unroll
    for (int k = 0; k < kHeldVectors; ++k) {
      float v[N];
      float g[N];
      y.get(k, v);
      dy.get(k, g);
#pragma unroll
      for (int i = 0; i < N; ++i) dot += g[i] * v[i];
    }
    dot = reduce(dot, Sum());
    T* dx = row_at<T>(p.dx, row);
    y.visit(cols, [&](int k, int col) {
      float v[N];
      float g[N];
      y.get(k, v);
      dy.get(k, g);
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] *= g[i] - dot;
      store(dx + col, v);
    });
  }
}

void launch_forward(const Context& ctx, const SoftmaxForward& p) {
  if (p.rows.count == 0) return;
  const bool vector = are_vectorisable({&p.x, &p.y}, p.rows, p.cols);
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
  check(cudaGetLastError(), "softmax_forward");
}

void launch_backward(const Context& ctx, const SoftmaxBackward& p) {
  if (p.rows.count == 0) return;
  const bool vector = are_vectorisable({&p.y, &p.dy, &p.dx}, p.rows, p.cols);
  dispatch(p.y.dtype, vector, [&]<class T, int N>() {
    RowLaunch launch = choose_row_launch(p.rows.count, p.cols, N);
    auto kernel = backward<T, N>;
    if constexpr (N > 1) {
      if (const auto held = held_launch<N>(p.rows, p.cols, {&p.y, &p.dy, &p.dx})) {
        launch = *held;
        kernel = backward_held<T, N>;
      }
    }
    kernel<<<launch.blocks, dim3(launch.threads_per_row, launch.rows_per_block),
             launch.shared_floats * sizeof(float), static_cast<cudaStream_t>(ctx.stream)>>>(p);
  });
  check(cudaGetLastError(), "softmax_backward");
}

const RegisterKernel<SoftmaxForward> kForward(DeviceType::cuda, {.launch = launch_forward});
const RegisterKernel<SoftmaxBackward> kBackward(DeviceType::cuda, {.launch = launch_backward});

}  // namespace
}  // namespace tigon::cuda
