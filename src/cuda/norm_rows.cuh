#pragma once

#include <cstdint>
#include <cstdlib>

#include "base/rows.h"
#include "cuda/vector.cuh"

// What the persistent kernels of the norms read: rows, and vectors over columns.
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

/// A [cols] vector plus `offset` as float32 in shared memory; `nothing` plus it where there is no
/// vector. Vectors of N are cut into pieces of 16 bytes that lie apart, so that a warp reads
/// without conflicts.
template <int N>
class SharedVector {
 public:
  /// All threads of the block must call, and wait for each other before the first use.
  __device__ __forceinline__ SharedVector(float* memory, const RowView& vector, float nothing,
                                          float offset, int cols)
      : memory_(memory), cols_(cols) {
    const auto threads = static_cast<int>(blockDim.x * blockDim.y);
    const auto thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
    for (int col = thread * N; col < cols; col += threads * N) {
      float w[N];
      load_or(vector, nothing, col, w);
#pragma unroll
      for (int i = 0; i < N; i += 4)
        *at(col, i) =
            make_float4(w[i] + offset, w[i + 1] + offset, w[i + 2] + offset, w[i + 3] + offset);
    }
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

}  // namespace tigon::cuda
