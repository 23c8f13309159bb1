#include "kernels/softmax.h"

#include "cuda/config/rows.h"
#include "cuda/device.h"
#include "cuda/dispatch.cuh"
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
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  // Every thread of a block makes the same number of turns: reduce_row needs them all.
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
    const float max = reduce_row(online.max, blockDim.x, shared, Max());
    const float part = online.sum * expf(online.max - OnlineSum::base(max));
    const float scale = 1.0F / reduce_row(part, blockDim.x, shared, Sum());

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

template <class T, int N>
__global__ void backward(const SoftmaxBackward p) {
  extern __shared__ float shared[];
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
    dot = reduce_row(dot, blockDim.x, shared, Sum());
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

void launch_forward(const Context& ctx, const SoftmaxForward& p) {
  if (p.rows.count == 0) return;
  dispatch(p.x.dtype, are_vectorisable({&p.x, &p.y}, p.rows, p.cols), [&]<class T, int N>() {
    const RowLaunch launch = choose_row_launch(p.rows.count, p.cols, N);
    forward<T, N>
        <<<launch.blocks, dim3(launch.threads_per_row, launch.rows_per_block),
           launch.shared_floats * sizeof(float), static_cast<cudaStream_t>(ctx.stream)>>>(p);
  });
  check(cudaGetLastError(), "softmax_forward");
}

void launch_backward(const Context& ctx, const SoftmaxBackward& p) {
  if (p.rows.count == 0) return;
  dispatch(
      p.y.dtype, are_vectorisable({&p.y, &p.dy, &p.dx}, p.rows, p.cols), [&]<class T, int N>() {
        const RowLaunch launch = choose_row_launch(p.rows.count, p.cols, N);
        backward<T, N>
            <<<launch.blocks, dim3(launch.threads_per_row, launch.rows_per_block),
               launch.shared_floats * sizeof(float), static_cast<cudaStream_t>(ctx.stream)>>>(p);
      });
  check(cudaGetLastError(), "softmax_backward");
}

const RegisterKernel<SoftmaxForward> kForward(DeviceType::cuda, {.launch = launch_forward});
const RegisterKernel<SoftmaxBackward> kBackward(DeviceType::cuda, {.launch = launch_backward});

}  // namespace
}  // namespace tigon::cuda
