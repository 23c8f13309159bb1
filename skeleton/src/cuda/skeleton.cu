#include "kernels/skeleton.h"

#include "cuda/columns.cuh"
#include "cuda/config/rows.h"
#include "cuda/device.h"
#include "cuda/dispatch.cuh"
#include "cuda/vector.cuh"
#include "kernels/registry.h"

namespace tigon::cuda {
namespace {

// Forward and dx are the same product: in is x and out is y, or dy and dx.
template <class T, int N>
__global__ void scale(RowSpace rows, std::int64_t cols, RowView in, RowView weight, RowView out) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t row = blockIdx.x * static_cast<std::int64_t>(blockDim.y) + threadIdx.y;
       row < rows.count; row += step) {
    const std::int64_t in_at = in.offset(rows, row);
    const std::int64_t out_at = out.offset(rows, row);
    for (std::int64_t col = threadIdx.x * N; col < cols; col += blockDim.x * N) {
      float v[N];
      float w[N];
      load_as<T>(in, in_at + col * in.col_stride, v);
      load(weight, col * weight.col_stride, w);
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] *= w[i];
      store_as<T>(out, out_at + col * out.col_stride, v);
    }
  }
}

/// dy * x, summed over rows: dweight.
template <class T, int N>
struct WeightGradient {
  SkeletonBackward p;

  __device__ __forceinline__ void operator()(std::int64_t row, std::int64_t col,
                                             float (&out)[N]) const {
    float g[N];
    load_as<T>(p.x, p.x.offset(p.rows, row) + col * p.x.col_stride, out);
    load_as<T>(p.dy, p.dy.offset(p.rows, row) + col * p.dy.col_stride, g);
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] *= g[i];
  }
};

template <class T, int N>
void launch_scale(const Context& ctx, const RowSpace& rows, std::int64_t cols, const RowView& in,
                  const RowView& weight, const RowView& out) {
  if (rows.count == 0 || cols == 0) return;
  const RowLaunch launch = choose_row_launch(rows.count, cols, N);
  scale<T, N><<<launch.blocks, dim3(launch.threads_per_row, launch.rows_per_block), 0,
                static_cast<cudaStream_t>(ctx.stream)>>>(rows, cols, in, weight, out);
}

void launch_forward(const Context& ctx, const SkeletonForward& p) {
  dispatch(p.x.dtype, are_vectorisable({&p.x, &p.y, &p.weight}, p.rows, p.cols),
           [&]<class T, int N>() { launch_scale<T, N>(ctx, p.rows, p.cols, p.x, p.weight, p.y); });
  check(cudaGetLastError(), "skeleton_forward");
}

void launch_backward(const Context& ctx, const SkeletonBackward& p) {
  const bool vector = are_vectorisable({&p.x, &p.dy, &p.dx, &p.weight}, p.rows, p.cols);
  dispatch(p.x.dtype, vector, [&]<class T, int N>() {
    if (p.dx) launch_scale<T, N>(ctx, p.rows, p.cols, p.dy, p.weight, p.dx);
    if (p.dweight)
      sum_columns<N>(ctx, p.rows.count, p.cols, WeightGradient<T, N>{p},
                     static_cast<float*>(ctx.workspace), p.dweight);
  });
  check(cudaGetLastError(), "skeleton_backward");
}

std::size_t backward_workspace(const Context& ctx, const SkeletonBackward& p) {
  return p.dweight ? column_workspace(p.rows.count, p.cols, ctx.device.index) : 0;
}

const RegisterKernel<SkeletonForward> kForward(DeviceType::cuda, {.launch = launch_forward});
const RegisterKernel<SkeletonBackward> kBackward(DeviceType::cuda,
                                                 {.launch = launch_backward,
                                                  .workspace = backward_workspace});

}  // namespace
}  // namespace tigon::cuda
