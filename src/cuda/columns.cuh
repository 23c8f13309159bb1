#pragma once

#include "cuda/config/rows.h"
#include "cuda/device.h"
#include "cuda/vector.cuh"
#include "tigon/context.h"

// Sums over rows (dweight, dbias) without atomics: partial sums per slice of rows, then the slices
// in order. The same result bit for bit on every run.
namespace tigon::cuda {

/// partials[k][slice][col] = the k-th of K sums of f over the slice's rows. F gives N neighbouring
/// columns of each: __device__ void operator()(std::int64_t row, std::int64_t col,
/// float (&out)[K * N]), out[k * N + i].
template <int N, int K, class F>
__global__ void column_partials(std::int64_t rows, std::int64_t cols, std::int64_t slices, F f,
                                float* partials) {
  __shared__ float shared[K][kColumnRows][kColumnThreads * N];
  const std::int64_t tile = blockIdx.x / slices;
  const std::int64_t slice = blockIdx.x % slices;
  const std::int64_t col = (tile * kColumnThreads + threadIdx.x) * N;
  float acc[K * N] = {};
  if (col < cols) {
    const std::int64_t end = rows * (slice + 1) / slices;
    for (std::int64_t row = rows * slice / slices + threadIdx.y; row < end; row += kColumnRows) {
      float v[K * N];
      f(row, col, v);
#pragma unroll
      for (int i = 0; i < K * N; ++i) acc[i] += v[i];
    }
  }
#pragma unroll
  for (int i = 0; i < K * N; ++i) shared[i / N][threadIdx.y][threadIdx.x * N + i % N] = acc[i];
  __syncthreads();
  for (int i = threadIdx.y * kColumnThreads + threadIdx.x; i < kColumnThreads * N;
       i += kColumnRows * kColumnThreads) {
    const std::int64_t at = tile * kColumnThreads * N + i;
    if (at >= cols) continue;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float total = 0.0F;
      for (int r = 0; r < kColumnRows; ++r) total += shared[k][r][i];
      partials[(k * slices + slice) * cols + at] = total;
    }
  }
}

/// out[col] = sum over slices of partials[slice][col]: every blockDim.y-th slice by one thread,
/// then these sums in order.
inline __global__ void column_sum(const float* partials, std::int64_t slices, std::int64_t cols,
                                  RowView out) {
  __shared__ float shared[kSumRows][kColumnThreads];
  const std::int64_t col = static_cast<std::int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x;
  float total[1] = {0.0F};
  if (col < cols)
#pragma unroll 4
    for (std::int64_t s = threadIdx.y; s < slices; s += kSumRows)
      total[0] += partials[s * cols + col];
  shared[threadIdx.y][threadIdx.x] = total[0];
  __syncthreads();
  if (threadIdx.y > 0 || col >= cols) return;
  for (int r = 1; r < kSumRows; ++r) total[0] += shared[r][threadIdx.x];
  store(out, col * out.col_stride, total);
}

inline void sum_partials(cudaStream_t stream, const float* partials, std::int64_t slices,
                         std::int64_t cols, const RowView& out) {
  const std::int64_t blocks = (cols + kColumnThreads - 1) / kColumnThreads;
  column_sum<<<blocks, dim3(kColumnThreads, kSumRows), 0, stream>>>(partials, slices, cols, out);
}

/// partials[col] = the sum over threadIdx.y of what each thread has summed of its columns, as
/// HeldRow lays them out; `shared` holds blockDim.y * cols floats where blockDim.y > 1, and is no
/// longer in use.
template <int N>
__device__ __forceinline__ void write_column_partials(const float (&sums)[kHeldVectors][N],
                                                      int cols, float* shared, float* partials) {
  float* mine = blockDim.y == 1 ? partials : shared + threadIdx.y * cols;
  __syncthreads();  // what lies there may still be read
#pragma unroll
  for (int k = 0; k < kHeldVectors; ++k) {
    const int col = static_cast<int>(threadIdx.x + k * blockDim.x) * N;
    if (col >= cols) continue;
#pragma unroll
    for (int i = 0; i < N; i += 4)
      *reinterpret_cast<float4*>(mine + col + i) =
          make_float4(sums[k][i], sums[k][i + 1], sums[k][i + 2], sums[k][i + 3]);
  }
  if (blockDim.y == 1) return;
  __syncthreads();
  const int threads = blockDim.x * blockDim.y;
  for (int col = threadIdx.y * blockDim.x + threadIdx.x; col < cols; col += threads) {
    float total = 0.0F;
    for (int r = 0; r < blockDim.y; ++r) total += shared[r * cols + col];
    partials[col] = total;
  }
}

/// Per sum. Enough for every vector width: wider tiles are fewer, hence cut into more slices.
inline std::size_t column_workspace(std::int64_t rows, std::int64_t cols, int device) {
  const ColumnLaunch launch = choose_column_launch(rows, cols, 8, multiprocessors(device));
  return static_cast<std::size_t>(launch.slices * cols) * sizeof(float);
}

/// outs[k] = the k-th sum of f over all rows in one pass, using K * column_workspace() bytes at
/// `partials`. Absent outputs are left out.
template <int N, class F, int K>
void sum_columns(const Context& ctx, std::int64_t rows, std::int64_t cols, F f, float* partials,
                 const RowView (&outs)[K]) {
  if (cols == 0) return;
  const auto stream = static_cast<cudaStream_t>(ctx.stream);
  const ColumnLaunch launch =
      choose_column_launch(rows, cols, N, multiprocessors(ctx.device.index));
  column_partials<N, K>
      <<<launch.tiles * launch.slices, dim3(kColumnThreads, kColumnRows), 0, stream>>>(
          rows, cols, launch.slices, f, partials);
  for (int k = 0; k < K; ++k)
    if (outs[k])
      sum_partials(stream, partials + k * launch.slices * cols, launch.slices, cols, outs[k]);
}

template <int N, class F>
void sum_columns(const Context& ctx, std::int64_t rows, std::int64_t cols, F f, float* partials,
                 const RowView& out) {
  const RowView outs[1] = {out};
  sum_columns<N>(ctx, rows, cols, f, partials, outs);
}

}  // namespace tigon::cuda
