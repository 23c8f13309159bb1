#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/vector.cuh"

namespace tigon::cuda {

/// How the threads along x share one row of T that may start and end off a 16-byte boundary (every
/// odd vocabulary makes such rows): single elements up to the first boundary, vectors of N, single
/// elements after the last. Needs unit column stride and blockDim.x >= N, or N = 1 for any stride.
///
/// visit(f) calls f(std::integral_constant<int, W>, col) for W = N or 1; reverse(f) in the opposite
/// order, so that what a first pass read last, and the caches still hold, is read first.
template <class T, int N>
class RowSweep {
 public:
  __device__ __forceinline__ RowSweep(const T* row, std::int64_t cols) : cols_(cols) {
    if constexpr (N > 1) {
      static_assert(sizeof(T) * N == 16);
      const auto past = static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T));
      head_ = min(static_cast<std::int64_t>((N - past) % N), cols);
    }
    vectors_ = (cols - head_) / N;
  }

  template <class F>
  __device__ __forceinline__ void visit(F&& f) const {
    edges(f);
#pragma unroll 4
    for (std::int64_t v = threadIdx.x; v < vectors_; v += blockDim.x) f(kVector, head_ + v * N);
  }

  template <class F>
  __device__ __forceinline__ void reverse(F&& f) const {
    const std::int64_t turns = (vectors_ - threadIdx.x + blockDim.x - 1) / blockDim.x;
#pragma unroll 4
    for (std::int64_t k = turns - 1; k >= 0; --k)
      f(kVector, head_ + (threadIdx.x + k * blockDim.x) * N);
    edges(f);
  }

 private:
  static constexpr std::integral_constant<int, N> kVector{};
  static constexpr std::integral_constant<int, 1> kSingle{};

  template <class F>
  __device__ __forceinline__ void edges(F&& f) const {
    if constexpr (N > 1) {
      if (threadIdx.x < head_) f(kSingle, static_cast<std::int64_t>(threadIdx.x));
      const std::int64_t col = head_ + vectors_ * N + threadIdx.x;
      if (col < cols_) f(kSingle, col);
    }
  }

  std::int64_t cols_;
  std::int64_t head_ = 0;
  std::int64_t vectors_;
};

/// Stores W values at `col` of a row whose alignment may differ from that of the row swept.
template <class T, int W>
__device__ __forceinline__ void store_at(const RowView& view, T* row, std::int64_t col,
                                         bool together, const float (&x)[W]) {
  if constexpr (W == 1) {
    store(row + col * view.col_stride, x);
  } else if (together) {
    store_streaming(row + col, x);
  } else {
#pragma unroll
    for (int i = 0; i < W; ++i) row[col + i] = from_float<T>(x[i]);
  }
}

template <class T>
__device__ __forceinline__ bool same_alignment(const T* a, const T* b) {
  return (reinterpret_cast<std::uintptr_t>(a) - reinterpret_cast<std::uintptr_t>(b)) % 16 == 0;
}

template <class T, int N>
__device__ __forceinline__ void write_zeros(const RowView& view, T* row, std::int64_t cols) {
  RowSweep<T, N>(row, cols).visit([&](auto width, std::int64_t col) {
    const float zeros[width.value] = {};
    store_at(view, row, col, true, zeros);
  });
}

}  // namespace tigon::cuda
