#pragma once

#include <cstdint>
#include <cstdlib>
#include <initializer_list>

#include "cuda/columns.cuh"
#include "cuda/config/rows.h"
#include "cuda/device.h"
#include "cuda/held_row.cuh"
#include "cuda/reduce.cuh"
#include "cuda/vector.cuh"
#include "tigon/context.h"

// The backward of rms_norm and layer_norm where rows lie at one distance and fit the chip: dx and
// the sums over rows in one reading, by blocks that stay.
namespace tigon::cuda {

/// Rows at one distance, which a 32-bit number of bytes can say: a row is found in one instruction.
class RowStream {
 public:
  RowStream() = default;
  RowStream(const RowView& view)  // NOLINT(google-explicit-constructor)
      : data_(static_cast<char*>(view.data)),
        stride_(static_cast<int>(view.strides[0] * size_of(view.dtype))) {}

  static bool fits(const RowView& view) {
    return std::abs(view.strides[0]) * size_of(view.dtype) <= 0x7FFFFFFF;
  }

  __device__ __forceinline__ explicit operator bool() const { return data_ != nullptr; }

  template <class T>
  __device__ __forceinline__ T* row(int row) const {
    return reinterpret_cast<T*>(data_ + static_cast<std::int64_t>(row) * stride_);
  }

 private:
  char* data_ = nullptr;
  int stride_ = 0;
};

/// xhat = (x - mean) * rstd, or x * rstd where the norm does not centre. x, dy, dsum and dx are of
/// one type.
struct NormBackward {
  int rows = 0;
  int cols = 0;
  RowStream x;
  RowStream dy;
  RowStream dsum;  // added to dx, or absent
  RowStream dx;    // or absent
  RowStream mean;  // float32, of a norm that centres
  RowStream rstd;  // float32
  RowView weight;  // [cols] of any type, or empty
  float weight_offset = 0.0F;
  bool round_before_weight = false;
  float* dweight = nullptr;  // [blocks, cols]: sums over the rows of a block, or null
  float* dbias = nullptr;    // likewise
};

/// Sums over the threads of one row, which share threadIdx.y; rows of a block wait for themselves
/// alone. `slots` holds 4 floats for every warp of the row.
class RowSums {
 public:
  __device__ __forceinline__ explicit RowSums(float* slots)
      : width_(static_cast<int>(blockDim.x)), warps_(width_ / kWarp) {
    slots_ = slots + threadIdx.y * 4 * max(warps_, 1);
  }

  /// All threads of the block must call equally often.
  template <int kSums>
  __device__ __forceinline__ void operator()(float (&v)[kSums]) {
    static_assert(kSums <= 2);
    if (width_ < kWarp) {
      for (int lane = width_ / 2; lane > 0; lane /= 2)
        for (float& sum : v) sum += __shfl_xor_sync(0xFFFFFFFF, sum, lane);
      return;
    }
#pragma unroll
    for (int lane = kWarp / 2; lane > 0; lane /= 2)
#pragma unroll
      for (int i = 0; i < kSums; ++i) v[i] += __shfl_xor_sync(0xFFFFFFFF, v[i], lane);
    if (warps_ <= 1) return;
    // Two sets of slots in turn: the last sums may still be read while these are written.
    float* set = slots_ + turn_ * 2 * warps_;
    turn_ ^= 1;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    if (threadIdx.x % kWarp == 0)
#pragma unroll
      for (int i = 0; i < kSums; ++i) set[i * warps_ + warp] = v[i];
    asm volatile("bar.sync %0, %1;" ::"r"(1 + static_cast<int>(threadIdx.y)), "r"(width_)
                 : "memory");
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      v[i] = 0.0F;
      for (int w = 0; w < warps_; ++w) v[i] += set[i * warps_ + w];
    }
  }

 private:
  float* slots_;
  int width_;
  int warps_;
  int turn_ = 0;
};

/// weight + weight_offset as float32 in shared memory, the vectors of N cut into pieces of 16 bytes
/// that lie apart, so that a warp reads without conflicts.
template <int N>
class SharedScale {
 public:
  __device__ __forceinline__ SharedScale(float* memory, const RowView& weight, float offset,
                                         int cols)
      : memory_(memory), cols_(cols) {
    const auto threads = static_cast<int>(blockDim.x * blockDim.y);
    const auto thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
    for (int col = thread * N; col < cols; col += threads * N) {
      float w[N];
      load_or(weight, 1.0F, col, w);
#pragma unroll
      for (int i = 0; i < N; i += 4)
        *at(col, i) =
            make_float4(w[i] + offset, w[i + 1] + offset, w[i + 2] + offset, w[i + 3] + offset);
    }
    __syncthreads();
  }

  __device__ __forceinline__ void get(int col, float (&out)[N]) const {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const float4 w = *at(col, i);
      out[i] = w.x;
      out[i + 1] = w.y;
      out[i + 2] = w.z;
      out[i + 3] = w.w;
    }
  }

 private:
  __device__ __forceinline__ float4* at(int col, int i) const {
    return reinterpret_cast<float4*>(memory_ + i / 4 * (cols_ / N * 4) + col / N * 4);
  }

  float* memory_;
  int cols_;
};

template <class T, int N, bool kCentred>
__global__ void __launch_bounds__(kPersistentThreads, 1)
    norm_backward(const NormBackward p, const int stages) {
  extern __shared__ float shared[];
  const auto warps = static_cast<int>(max(1U, blockDim.x / kWarp) * blockDim.y);
  RowSums sums(shared);
  const SharedScale<N> scale(shared + 4 * warps, p.weight, p.weight ? p.weight_offset : 0.0F,
                             p.cols);
  float* const pipeline_memory = shared + 4 * warps + p.cols;
  RowPipeline<T, N, 2> pipeline(pipeline_memory, stages);

  const int first = HeldRow<T, N>::column(0);
  const auto column_step = static_cast<int>(blockDim.x) * N;
  const auto step = static_cast<int>(gridDim.x * blockDim.y);
  const auto begin = static_cast<int>(blockIdx.x * blockDim.y);
  int ahead = begin + static_cast<int>(threadIdx.y);  // the row that is fetched next
  const auto fetch = [&](int stage) {
    if (ahead < p.rows) {
      const T* x = p.x.row<const T>(ahead) + first;
      const T* dy = p.dy.row<const T>(ahead) + first;
#pragma unroll
      for (int k = 0; k < kHeldVectors; ++k) {
        if (first + k * column_step >= p.cols) break;
        pipeline.fetch(stage, 0, k, x + k * column_step);
        pipeline.fetch(stage, 1, k, dy + k * column_step);
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
      sums(dots);
      const float mean_dot = dots[0] * per_column;
      float mean_scaled = 0.0F;
      if constexpr (kCentred) mean_scaled = dots[1] * per_column;
      T* dx = p.dx.row<T>(row);
      const T* dsum = p.dsum.row<const T>(row);
      visit([&](int, int col, auto& xhat, const auto&, const auto& scaled) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const float g = kCentred ? scaled[i] - mean_scaled : scaled[i];
          xhat[i] = rstd * (g - xhat[i] * mean_dot);
        }
        if (p.dsum) {
          float d[N];
          load(dsum + col, d);
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
  const PersistentLaunch launch = choose_persistent_launch(
      rows.count, cols, N, multiprocessors(device), shared_memory_per_block(device));
  for (const RowView* view : views)
    if (*view && (view->dtype != dtype_of<T> || !RowStream::fits(*view))) return false;
  // Twice as far as the last row: rows that are asked for ahead are counted past it.
  if (rows.count == 0 || rows.count > 0x3FFFFFFF || rows.axes > 1 || launch.stages == 0)
    return false;
  p.rows = static_cast<int>(rows.count);
  p.cols = static_cast<int>(cols);
  const auto kernel = norm_backward<T, N, kCentred>;
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
    blocks = std::max(blocks, choose_persistent_launch(rows, cols, width, multiprocessors(device),
                                                       shared_memory_per_block(device))
                                  .blocks);
  return blocks * cols;
}

}  // namespace tigon::cuda
