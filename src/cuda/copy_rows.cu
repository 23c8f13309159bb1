#include "kernels/copy_rows.h"

#include "cuda/config/rows.h"
#include "cuda/device.h"
#include "cuda/dispatch.cuh"
#include "cuda/vector.cuh"
#include "kernels/registry.h"

namespace tigon::cuda {
namespace {

template <class T, int N>
__global__ void copy(const CopyRows p) {
  const float scale = p.scale == nullptr ? 1.0F : *p.scale;
  if (p.scale != nullptr && scale == 1.0F && p.from.data == p.to.data) return;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.y) + threadIdx.y;
       i < p.count; i += step) {
    const std::int64_t from_row = p.from_index == nullptr ? i : p.from_index[i];
    const std::int64_t from = p.from ? p.from.offset(p.from_rows, from_row) : 0;
    const std::int64_t to = p.to.offset(p.to_rows, p.to_index == nullptr ? i : p.to_index[i]);
    for (std::int64_t col = threadIdx.x * N; col < p.cols; col += blockDim.x * N) {
      float v[N];
      if (p.from) {
        load(p.from, from + col * p.from.col_stride, v);
      } else {
#pragma unroll
        for (int k = 0; k < N; ++k) v[k] = p.fill;
      }
      if (p.scale != nullptr) {
#pragma unroll
        for (int k = 0; k < N; ++k) v[k] = v[k] == 0.0F ? v[k] : v[k] * scale;
      }
      store_as<T>(p.to, to + col * p.to.col_stride, v);
    }
  }
}

void launch_copy(const Context& ctx, const CopyRows& p) {
  if (p.count == 0 || p.cols == 0) return;
  const bool vectorised = is_vectorisable(p.to, p.to_rows, p.cols) &&
                          (!p.from || is_vectorisable(p.from, p.from_rows, p.cols));
  dispatch(p.to.dtype, vectorised, [&]<class T, int N>() {
    const RowLaunch launch = choose_row_launch(p.count, p.cols, N);
    copy<T, N><<<launch.blocks, dim3(launch.threads_per_row, launch.rows_per_block), 0,
                 static_cast<cudaStream_t>(ctx.stream)>>>(p);
  });
  check(cudaGetLastError(), "copy_rows");
}

const RegisterKernel<CopyRows> kCopy(DeviceType::cuda, {.launch = launch_copy});

}  // namespace
}  // namespace tigon::cuda
