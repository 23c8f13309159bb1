#pragma once

#include <cuda_pipeline.h>

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

/// The rows of `Streams` tensors on their way through shared memory, kStages deep: each thread
/// copies what HeldRow would hold into places of its own, so nothing but its own copies is waited
/// for. Before compute capability 8.0 the copies are ordinary ones.
template <class T, int N, int Streams>
class RowPipeline {
 public:
  __device__ __forceinline__ explicit RowPipeline(float* shared)
      : own_(reinterpret_cast<Vector<T, N>*>(shared) + threadIdx.y * blockDim.x + threadIdx.x) {}

  __device__ __forceinline__ void fetch(int stage, int stream, const T* row, int cols) {
    HeldRow<T, N>::visit(cols, [&](int k, int col) {
      __pipeline_memcpy_async(at(stage, stream, k), row + col, sizeof(Vector<T, N>));
    });
  }

  __device__ __forceinline__ static void commit() { __pipeline_commit(); }
  /// For all commits but the last `newer`.
  __device__ __forceinline__ static void wait(int newer) { __pipeline_wait_prior(newer); }

  __device__ __forceinline__ void get(int stage, int stream, int k, float (&out)[N]) const {
    at(stage, stream, k)->get(out);
  }

 private:
  __device__ __forceinline__ Vector<T, N>* at(int stage, int stream, int k) const {
    const int threads = static_cast<int>(blockDim.x * blockDim.y);
    return own_ + ((stage * Streams + stream) * kHeldVectors + k) * threads;
  }

  Vector<T, N>* own_;
};

}  // namespace tigon::cuda
