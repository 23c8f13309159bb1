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

}  // namespace tigon::cuda
