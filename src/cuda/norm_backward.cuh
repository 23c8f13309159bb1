#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "cuda/columns.cuh"
#include "cuda/config/rows.h"
#include "cuda/device.h"
#include "cuda/held_row.cuh"
#include "cuda/norm_rows.cuh"
#include "cuda/reduce.cuh"
#include "cuda/vector.cuh"
#include "tigon/context.h"

// The backward of rms_norm and layer_norm where rows lie at one distance and fit the chip: dx and
// the sums over rows in one reading, by blocks that stay.
namespace tigon::cuda {

/// xhat = (x - mean) * rstd, or x * rstd where the norm does not centre. x, dy, dsum and dx are of
/// one type.
struct NormBackward {
  int rows = 0;
  int cols = 0;
  RowStream x;
  RowStream dy;
  RowStream dsum;  // added to dx, of a norm that does not centre
  bool has_dsum = false;
  RowStream dx;    // or absent
  RowStream mean;  // float32, of a norm that centres
  RowStream rstd;  // float32
  RowView weight;  // [cols] of any type, or empty
  float weight_offset = 0.0F;
  bool round_before_weight = false;
  float* dweight = nullptr;  // [blocks, cols]: sums over the rows of a block, or null
  float* dbias = nullptr;    // likewise
};

/// kStreams: x and dy, and with 3 of them dsum.
template <class T, int N, bool kCentred, int kStreams>
__global__ void __launch_bounds__(kPersistentThreads, 1)
    norm_backward(const NormBackward p, const int stages) {
  extern __shared__ float shared[];
  const auto warps = static_cast<int>(max(1U, blockDim.x / kWarp) * blockDim.y);
  RowReduction<true> reduce(shared);
  const SharedVector<N> scale(shared + RowReduction<>::kFloats * warps, p.weight, 1.0F,
                              p.weight ? p.weight_offset : 0.0F, p.cols);
  __syncthreads();
  float* const pipeline_memory = shared + RowReduction<>::kFloats * warps + p.cols;
  RowPipeline<T, N, kStreams> pipeline(pipeline_memory, stages);

  const int first = HeldRow<T, N>::column(0);
  const auto column_step = static_cast<int>(blockDim.x) * N;
  const auto step = static_cast<int>(gridDim.x * blockDim.y);
  const auto begin = static_cast<int>(blockIdx.x * blockDim.y);
  int ahead = begin + static_cast<int>(threadIdx.y);  // the row that is fetched next
  const auto fetch = [&](int stage) {
    if (ahead < p.rows) {
      const T* x = p.x.row<const T>(ahead) + first;
      const T* dy = p.dy.row<const T>(ahead) + first;
      const T* dsum = kStreams == 3 ? p.dsum.row<const T>(ahead) + first : nullptr;
#pragma unroll
      for (int k = 0; k < kHeldVectors; ++k) {
        if (first + k * column_step >= p.cols) break;
        pipeline.fetch(stage, 0, k, x + k * column_step);
        pipeline.fetch(stage, 1, k, dy + k * column_step);
        if constexpr (kStreams == 3) pipeline.fetch(stage, 2, k, dsum + k * column_step);
      }
    }
    pipeline.commit();
    ahead += step;
  };
  const float per_column = 1.0F / static_cast<float>(p.cols);
  float dweight[kHeldVectors][N] = {};
  float dbias[kCentred ? kHeldVectors : 1][N] = {};

  for (int stage = 0; stage + 1 < stages; ++stage) fetch(stage);
  int stage = 0;
  int last_stage = stages - 1;
  for (int block_row = begin; block_row < p.rows; block_row += step) {
    const int row = block_row + static_cast<int>(threadIdx.y);
    const bool active = row < p.rows;
    const float rstd = active ? *p.rstd.row<const float>(row) : 0.0F;
    const float mean = kCentred && active ? *p.mean.row<const float>(row) : 0.0F;
    fetch(last_stage);
    if (stages == 3)
      pipeline.wait(2);
    else
      pipeline.wait(1);

    // A thread's vectors are made twice, from shared memory: registers are for the sums over rows.
    // g: dy, scaled: dy * weight.
    const auto visit = [&](auto&& f) {
      if (!active) return;
#pragma unroll
      for (int k = 0; k < kHeldVectors; ++k) {
        const int col = first + k * column_step;
        if (col >= p.cols) break;
        float xhat[N];
        float g[N];
        float scaled[N];
        pipeline.get(stage, 0, k, xhat);
        pipeline.get(stage, 1, k, g);
        scale.get(col, scaled);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          // Rounded, so that the sum and what is made of it cancel exactly where they should.
          scaled[i] = __fmul_rn(scaled[i], g[i]);
          xhat[i] = (kCentred ? xhat[i] - mean : xhat[i]) * rstd;
        }
        f(k, col, xhat, g, scaled);
      }
    };
    float dots[kCentred ? 2 : 1] = {};  // of dy * weight: with xhat, alone
    visit([&](int k, int, auto& xhat, const auto& g, const auto& scaled) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        dots[0] += scaled[i] * xhat[i];
        if constexpr (kCentred) {
          dots[1] += scaled[i];
          dbias[k][i] += g[i];
        }
      }
      if (p.dweight == nullptr) return;
      if (p.round_before_weight) round_as<T>(xhat);
#pragma unroll
      for (int i = 0; i < N; ++i) dweight[k][i] += g[i] * xhat[i];
    });
    if (p.dx) {
      reduce(dots, Sum());
      const float mean_dot = dots[0] * per_column;
      float mean_scaled = 0.0F;
      if constexpr (kCentred) mean_scaled = dots[1] * per_column;
      T* dx = p.dx.row<T>(row);
      visit([&](int k, int col, auto& xhat, const auto&, const auto& scaled) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const float g = kCentred ? scaled[i] - mean_scaled : scaled[i];
          xhat[i] = rstd * (g - xhat[i] * mean_dot);
        }
        if constexpr (kStreams == 3) {
          float d[N];
          pipeline.get(stage, 2, k, d);
#pragma unroll
          for (int i = 0; i < N; ++i) xhat[i] += d[i];
        }
        store(dx + col, xhat);
      });
    }
    last_stage = stage;
    stage = stage + 1 == stages ? 0 : stage + 1;
  }
  pipeline.wait(0);
  if (p.dweight != nullptr)
    write_column_partials(dweight, p.cols, pipeline_memory, p.dweight + blockIdx.x * p.cols);
  if constexpr (kCentred) {
    if (p.dbias != nullptr)
      write_column_partials(dbias, p.cols, pipeline_memory, p.dbias + blockIdx.x * p.cols);
  }
}

/// Launches it for views over `rows`, and then adds the partial sums of the blocks, in order, to
/// `dweight` and `dbias`. `partials` holds norm_backward_partials() floats for each of those that
/// are there. `views` are x, dy, dsum and dx. False where these are not all of one type, do not lie
/// at one distance or do not fit: nothing is done then.
template <class T, int N, bool kCentred>
bool launch_norm_backward(const Context& ctx, const RowSpace& rows, std::int64_t cols,
                          NormBackward p, std::initializer_list<const RowView*> views,
                          float* partials, const RowView& dweight, const RowView& dbias) {
  const int device = ctx.device.index;
  const PersistentLaunch launch =
      choose_persistent_launch(rows.count, cols, N, p.has_dsum ? 3 : 2, multiprocessors(device),
                               shared_memory_per_block(device));
  for (const RowView* view : views)
    if (*view && (view->dtype != dtype_of<T> || !RowStream::fits(*view))) return false;
  // Twice as far as the last row: rows that are asked for ahead are counted past it.
  if (rows.count == 0 || rows.count > 0x3FFFFFFF || rows.axes > 1 || launch.stages == 0)
    return false;
  p.rows = static_cast<int>(rows.count);
  p.cols = static_cast<int>(cols);
  auto kernel = norm_backward<T, N, kCentred, 2>;
  if constexpr (!kCentred)
    if (p.has_dsum) kernel = norm_backward<T, N, kCentred, 3>;
  allow_shared_memory(kernel, launch.shared_bytes);
  if (dweight) p.dweight = partials;
  if (dbias) p.dbias = partials + (dweight ? launch.blocks * p.cols : 0);
  const auto stream = static_cast<cudaStream_t>(ctx.stream);
  kernel<<<launch.blocks, dim3(launch.threads_per_row, launch.rows_per_block), launch.shared_bytes,
           stream>>>(p, launch.stages);
  if (dweight) sum_partials(stream, p.dweight, launch.blocks, p.cols, dweight);
  if (dbias) sum_partials(stream, p.dbias, launch.blocks, p.cols, dbias);
  return true;
}

/// Floats that the partial sums of one output take, whatever the vector width.
inline std::int64_t norm_backward_partials(std::int64_t rows, std::int64_t cols, int device) {
  std::int64_t blocks = 0;
  for (const int width : {4, 8})
    for (const int streams : {2, 3})
      blocks = std::max(
          blocks, choose_persistent_launch(rows, cols, width, streams, multiprocessors(device),
                                           shared_memory_per_block(device))
                      .blocks);
  return blocks * cols;
}

}  // namespace tigon::cuda
