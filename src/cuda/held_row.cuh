#pragma once

#include <cstdint>

#include "cuda/config/rows.h"
#include "cuda/vector.cuh"

namespace tigon::cuda {

/// What a thread holds of one row in registers: the vectors threadIdx.x, threadIdx.x + blockDim.x,
/// ... of N elements, kHeldVectors at most (fits_registers() says whether that is all of the row).
/// All loads are in flight before the first is used, and memory is read once.
template <class T, int N>
struct HeldRow {
  Vector<T, N> held[kHeldVectors];

  /// Zeros where the row has no more columns.
  __device__ __forceinline__ void load(const T* row, int cols) {
#pragma unroll
    for (int k = 0; k < kHeldVectors; ++k) {
      held[k] = {};
      if (column(k) < cols) held[k].load(row + column(k));
    }
  }

  /// Calls f(k, first column) for the vectors that are there.
  template <class F>
  __device__ __forceinline__ static void visit(int cols, F&& f) {
#pragma unroll
    for (int k = 0; k < kHeldVectors; ++k)
      if (column(k) < cols) f(k, column(k));
  }

  __device__ __forceinline__ static int column(int k) {
    return static_cast<int>(threadIdx.x + k * blockDim.x) * N;
  }
};

}  // namespace tigon::cuda
