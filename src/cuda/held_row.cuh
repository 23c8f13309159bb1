#pragma once

#include <cuda_pipeline.h>

#include <cstdint>
#include <initializer_list>
#include <optional>

#include "cuda/config/rows.h"
#include "cuda/vector.cuh"

namespace tigon::cuda {

/// A row of a space with one axis.
template <class T>
__device__ __forceinline__ T* row_at(const RowView& view, std::int64_t row) {
  return static_cast<T*>(view.data) + row * view.strides[0];
}

/// What a thread holds of one row in registers: the vectors threadIdx.x, threadIdx.x + blockDim.x,
/// ... of N elements, kHeldVectors at most (fits_registers() says whether that is all of the row).
/// All loads are in flight before the first is used, and memory is read once.
template <class T, int N>
struct HeldRow {
  Vector<T, N> held[kHeldVectors];

  /// `nothing` where the row has no more columns.
  __device__ __forceinline__ void load(const T* row, int cols, float nothing = 0.0F) {
#pragma unroll
    for (int k = 0; k < kHeldVectors; ++k) {
      held[k] = Vector<T, N>::filled(nothing);
      if (column(k) < cols) held[k].load(row + column(k));
    }
  }

  /// Elements of the k-th vector, unpacked anew in every pass.
  __device__ __forceinline__ void get(int k, float (&out)[N]) {
    held[k].keep_packed();
    held[k].get(out);
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

/// How kernels that hold rows of these views are launched; nothing where the views are not of one
/// type, their rows do not lie at one distance each, or do not fit. Absent views do not count.
template <int N>
std::optional<RowLaunch> held_launch(const RowSpace& rows, std::int64_t cols,
                                     std::initializer_list<const RowView*> views) {
  const RowView& first = **views.begin();
  for (const RowView* view : views)
    if (*view && view->dtype != first.dtype) return std::nullopt;
  if (rows.axes > 1) return std::nullopt;
  const RowLaunch launch = choose_held_launch(rows.count, cols, N);
  if (!fits_registers(cols, N, launch.threads_per_row)) return std::nullopt;
  return launch;
}

/// The rows of kStreams tensors on their way through shared memory, some stages deep: each thread
/// copies its vectors of a row into places of its own, so nothing but its own copies is waited for.
/// Places of a warp lie side by side. Before compute capability 8.0 the copies are ordinary ones.
template <class T, int N, int kStreams>
class RowPipeline {
 public:
  static constexpr int kPlaces = kStreams * kHeldVectors;  // per stage and thread

  __device__ __forceinline__ RowPipeline(float* shared, int stages) {
    const auto thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
    own_ =
        reinterpret_cast<Vector<T, N>*>(shared) + thread / 32 * stages * kPlaces * 32 + thread % 32;
  }

  __device__ __forceinline__ void fetch(int stage, int stream, int k, const T* from) {
    __pipeline_memcpy_async(at(stage, stream, k), from, sizeof(Vector<T, N>));
  }
  __device__ __forceinline__ static void commit() { __pipeline_commit(); }
  /// For all commits but the last `newer`, a constant.
  __device__ __forceinline__ static void wait(int newer) { __pipeline_wait_prior(newer); }

  __device__ __forceinline__ void get(int stage, int stream, int k, float (&out)[N]) const {
    Vector<T, N> vec;
    vec.load(reinterpret_cast<const T*>(at(stage, stream, k)));
    vec.get(out);
  }

 private:
  __device__ __forceinline__ Vector<T, N>* at(int stage, int stream, int k) const {
    return own_ + (stage * kPlaces + stream * kHeldVectors + k) * 32;
  }

  Vector<T, N>* own_;
};

}  // namespace tigon::cuda
