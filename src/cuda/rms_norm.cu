#include "kernels/rms_norm.h"

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

template <int N>
__device__ __forceinline__ void load_scale(const RowView& weight, float offset, std::int64_t col,
                                           float (&out)[N]) {
  load_or(weight, 1.0F, col, out);
  if (!weight || offset == 0.0F) return;
#pragma unroll
  for (int i = 0; i < N; ++i) out[i] += offset;
}

template <class T, int N>
__global__ void forward(const RmsNormForward p) {
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
    const std::int64_t residual_at = active && p.residual ? p.residual.offset(p.rows, row) : 0;
    const std::int64_t sum_at = active && p.residual ? p.sum.offset(p.rows, row) : 0;

    float squares = 0.0F;
    for (std::int64_t col = threadIdx.x * N; col < cols; col += blockDim.x * N) {
      float x[N];
      load_as<T>(p.x, x_at + col * p.x.col_stride, x);
      if (p.residual) {
        float r[N];
        load_as<T>(p.residual, residual_at + col * p.residual.col_stride, r);
#pragma unroll
        for (int i = 0; i < N; ++i) x[i] += r[i];
        round_as<T>(x);
        store_as<T>(p.sum, sum_at + col * p.sum.col_stride, x);
      }
#pragma unroll
      for (int i = 0; i < N; ++i) squares += x[i] * x[i];
    }
    squares = reduce(squares, Sum());
    const float rstd = 1.0F / sqrtf(squares / static_cast<float>(p.cols) + p.eps);
    if (p.rstd && active && threadIdx.x == 0)
      static_cast<float*>(p.rstd.data)[p.rstd.offset(p.rows, row)] = rstd;

    // Second read: each thread reads what it read (or wrote) before, from L1 or L2.
    const RowView& in = p.residual ? p.sum : p.x;
    const std::int64_t in_at = p.residual ? sum_at : x_at;
    const std::int64_t y_at = active ? p.y.offset(p.rows, row) : 0;
    for (std::int64_t col = threadIdx.x * N; col < cols; col += blockDim.x * N) {
      float x[N];
      float w[N];
      load_as<T>(in, in_at + col * in.col_stride, x);
      load_scale(p.weight, p.weight_offset, col, w);
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] *= rstd;
      if (p.round_before_weight) round_as<T>(x);
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] *= w[i];
      store(p.y, y_at + col * p.y.col_stride, x);
    }
  }
}

/// The same for rows that fit registers, lie at one distance, and are of one type.
template <class T, int N>
__global__ void __launch_bounds__(1024) forward_held(const RmsNormForward p) {
  extern __shared__ float shared[];
  RowReduction<> reduce(shared);
  const bool same = p.weight && p.weight.dtype == dtype_of<T>;  // as x, and vectorisable
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t first = blockIdx.x * static_cast<std::int64_t>(blockDim.y);
       first < p.rows.count; first += step) {
    const std::int64_t row = first + threadIdx.y;
    const int cols = row < p.rows.count ? static_cast<int>(p.cols) : 0;
    HeldRow<T, N> x;
    x.load(row_at<const T>(p.x, row), cols);
    if (p.residual) {
      HeldRow<T, N> residual;
      residual.load(row_at<const T>(p.residual, row), cols);
      T* sum = row_at<T>(p.sum, row);
      x.visit(cols, [&](int k, int col) {
        float a[N];
        float b[N];
        x.held[k].get(a);
        residual.held[k].get(b);
#pragma unroll
        for (int i = 0; i < N; ++i) a[i] += b[i];
        x.held[k].set(a);
        x.held[k].store(sum + col);
      });
    }
    HeldRow<T, N> weight;  // asked for before the threads wait for each other
    if (same) weight.load(static_cast<const T*>(p.weight.data), cols);
    float squares = 0.0F;
#pragma unroll
    for (int k = 0; k < kHeldVectors; ++k) {
      float v[N];
      x.held[k].get(v);
#pragma unroll
      for (int i = 0; i < N; ++i) squares += v[i] * v[i];
    }
    squares = reduce(squares, Sum());
    const float rstd = rsqrtf(squares / static_cast<float>(p.cols) + p.eps);
    if (p.rstd && threadIdx.x == 0 && cols > 0) *row_at<float>(p.rstd, row) = rstd;

    T* y = row_at<T>(p.y, row);
    x.visit(cols, [&](int k, int col) {
      float v[N];
      float w[N];
      x.get(k, v);
      if (same) {
        weight.held[k].get(w);
#pragma unroll
        for (int i = 0; i < N; ++i) w[i] += p.weight_offset;
      } else {
        load_scale(p.weight, p.weight_offset, col, w);
      }
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] *= rstd;
      if (p.round_before_weight) round_as<T>(v);
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] *= w[i];
      store(y + col, v);
    });
  }
}

template <class T, int N>
__global__ void backward_dx(const RmsNormBackward p) {
  extern __shared__ float shared[];
  RowReduction<> reduce(shared);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t first = blockIdx.x * static_cast<std::int64_t>(blockDim.y);
       first < p.rows.count; first += step) {
    const std::int64_t row = first + threadIdx.y;
    const bool active = row < p.rows.count;
    const std::int64_t cols = active ? p.cols : 0;
    const std::int64_t x_at = active ? p.x.offset(p.rows, row) : 0;
    const std::int64_t dy_at = active ? p.dy.offset(p.rows, row) : 0;

    float dot = 0.0F;
    for (std::int64_t col = threadIdx.x * N; col < cols; col += blockDim.x * N) {
      float x[N];
      float g[N];
      float w[N];
      load_as<T>(p.x, x_at + col * p.x.col_stride, x);
      load(p.dy, dy_at + col * p.dy.col_stride, g);
      load_scale(p.weight, p.weight_offset, col, w);
#pragma unroll
      for (int i = 0; i < N; ++i) dot += g[i] * w[i] * x[i];
    }
    dot = reduce(dot, Sum());
    if (!active) continue;

    const float rstd = static_cast<const float*>(p.rstd.data)[p.rstd.offset(p.rows, row)];
    const float c = dot * rstd * rstd / static_cast<float>(p.cols);
    const std::int64_t dx_at = p.dx.offset(p.rows, row);
    const std::int64_t dsum_at = p.dsum ? p.dsum.offset(p.rows, row) : 0;
    for (std::int64_t col = threadIdx.x * N; col < cols; col += blockDim.x * N) {
      float x[N];
      float g[N];
      float w[N];
      load_as<T>(p.x, x_at + col * p.x.col_stride, x);
      load(p.dy, dy_at + col * p.dy.col_stride, g);
      load_scale(p.weight, p.weight_offset, col, w);
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = rstd * (g[i] * w[i] - x[i] * c);
      if (p.dsum) {
        load_as<T>(p.dsum, dsum_at + col * p.dsum.col_stride, g);
#pragma unroll
        for (int i = 0; i < N; ++i) x[i] += g[i];
      }
      store_as<T>(p.dx, dx_at + col * p.dx.col_stride, x);
    }
  }
}

/// dy * xhat, summed over rows: dweight.
template <class T, int N>
struct WeightGradient {
  RmsNormBackward p;

  __device__ __forceinline__ void operator()(std::int64_t row, std::int64_t col,
                                             float (&out)[N]) const {
    float g[N];
    load_as<T>(p.x, p.x.offset(p.rows, row) + col * p.x.col_stride, out);
    load(p.dy, p.dy.offset(p.rows, row) + col * p.dy.col_stride, g);
    const float rstd = static_cast<const float*>(p.rstd.data)[p.rstd.offset(p.rows, row)];
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] *= rstd;
    if (p.round_before_weight) round_as<T>(out);
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] *= g[i];
  }
};

void launch_forward(const Context& ctx, const RmsNormForward& p) {
  if (p.rows.count == 0) return;
  const bool vector =
      are_vectorisable({&p.x, &p.residual, &p.sum, &p.y, &p.weight}, p.rows, p.cols);
  dispatch(p.x.dtype, vector, [&]<class T, int N>() {
    RowLaunch launch = choose_row_launch(p.rows.count, p.cols, N);
    auto kernel = forward<T, N>;
    if constexpr (N > 1) {
      if (const auto held = held_launch<N>(p.rows, p.cols, {&p.x, &p.residual, &p.sum, &p.y})) {
        launch = *held;
        kernel = forward_held<T, N>;
      }
    }
    kernel<<<launch.blocks, dim3(launch.threads_per_row, launch.rows_per_block),
             launch.shared_floats * sizeof(float), static_cast<cudaStream_t>(ctx.stream)>>>(p);
  });
  check(cudaGetLastError(), "rms_norm_forward");
}

/// False where it does not fit.
template <class T, int N>
bool launch_held(const Context& ctx, const RmsNormBackward& p) {
  NormBackward norm;
  norm.x = p.x;
  norm.dy = p.dy;
  norm.dsum = p.dsum;
  norm.has_dsum = static_cast<bool>(p.dsum);
  norm.dx = p.dx;
  norm.rstd = p.rstd;
  norm.weight = p.weight;
  norm.weight_offset = p.weight_offset;
  norm.round_before_weight = p.round_before_weight;
  return launch_norm_backward<T, N, false>(ctx, p.rows, p.cols, norm, {&p.x, &p.dy, &p.dsum, &p.dx},
                                           static_cast<float*>(ctx.workspace), p.dweight, {});
}

void launch_backward(const Context& ctx, const RmsNormBackward& p) {
  const bool vector = are_vectorisable({&p.x, &p.dy, &p.dsum, &p.dx, &p.weight}, p.rows, p.cols);
  dispatch(p.x.dtype, vector, [&]<class T, int N>() {
    if constexpr (N > 1)
      if (launch_held<T, N>(ctx, p)) return;
    if (p.dx && p.rows.count > 0) {
      const RowLaunch launch = choose_row_launch(p.rows.count, p.cols, N);
      backward_dx<T, N>
          <<<launch.blocks, dim3(launch.threads_per_row, launch.rows_per_block),
             launch.shared_floats * sizeof(float), static_cast<cudaStream_t>(ctx.stream)>>>(p);
    }
    if (p.dweight)
      sum_columns<N>(ctx, p.rows.count, p.cols, WeightGradient<T, N>{p},
                     static_cast<float*>(ctx.workspace), p.dweight);
  });
  check(cudaGetLastError(), "rms_norm_backward");
}

std::size_t backward_workspace(const Context& ctx, const RmsNormBackward& p) {
  if (!p.dweight) return 0;
  const std::int64_t partials = norm_backward_partials(p.rows.count, p.cols, ctx.device.index);
  return std::max(column_workspace(p.rows.count, p.cols, ctx.device.index),
                  static_cast<std::size_t>(partials) * sizeof(float));
}

const RegisterKernel<RmsNormForward> kForward(DeviceType::cuda, {.launch = launch_forward});
const RegisterKernel<RmsNormBackward> kBackward(DeviceType::cuda,
                                                {.launch = launch_backward,
                                                 .workspace = backward_workspace});

}  // namespace
}  // namespace tigon::cuda
