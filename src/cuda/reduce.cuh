#pragma once

// The vocabulary of the CUDA kernels, second half: reductions over the threads of one row.
namespace tigon::cuda {

inline constexpr int kWarp = 32;

/// Reductions over the threads of a row, a power of two of them, which share threadIdx.y; every one
/// of them gets the result. In a fixed order. All threads of the block must call. Wider rows than a
/// warp exchange through kFloats floats of shared memory per warp: two sets of slots in turn, since
/// the last values may still be being read. kApart: rows of a block wait for themselves alone, by
/// barriers of their own, of which a multiprocessor has few: for the few blocks that stay on it.
template <bool kApart = false>
class RowReduction {
 public:
  static constexpr int kFloats = 4;

  __device__ __forceinline__ explicit RowReduction(float* slots)
      : width_(static_cast<int>(blockDim.x)), warps_(width_ / kWarp) {
    slots_ = slots + threadIdx.y * kFloats * max(warps_, 1);
  }

  template <class Op>
  __device__ __forceinline__ float operator()(float v, Op op) {
    float one[1] = {v};
    (*this)(one, op);
    return one[0];
  }

  template <int kMany, class Op>
  __device__ __forceinline__ void operator()(float (&v)[kMany], Op op) {
    static_assert(2 * kMany <= kFloats);
    within_warp(v, op);
    if (warps_ <= 1) return;
    float* const set = slots_ + turn_ * kFloats / 2 * warps_;
    turn_ ^= 1;
    if (threadIdx.x % kWarp == 0)
#pragma unroll
      for (int i = 0; i < kMany; ++i)
        set[i * warps_ + static_cast<int>(threadIdx.x) / kWarp] = v[i];
    if constexpr (kApart)
      asm volatile("bar.sync %0, %1;" ::"r"(1 + static_cast<int>(threadIdx.y)), "r"(width_)
                   : "memory");
    else
      __syncthreads();
#pragma unroll
    for (int i = 0; i < kMany; ++i) {
      v[i] = set[i * warps_];
      for (int w = 1; w < warps_; ++w) v[i] = op(v[i], set[i * warps_ + w]);
    }
  }

 private:
  /// Over the threads of this warp that belong to the row.
  template <int kMany, class Op>
  __device__ __forceinline__ void within_warp(float (&v)[kMany], Op op) const {
    if (width_ < kWarp) {
      for (int lane = width_ / 2; lane > 0; lane /= 2)
        for (float& value : v) value = op(value, __shfl_xor_sync(0xFFFFFFFF, value, lane));
      return;
    }
#pragma unroll
    for (int lane = kWarp / 2; lane > 0; lane /= 2)
#pragma unroll
      for (int i = 0; i < kMany; ++i) v[i] = op(v[i], __shfl_xor_sync(0xFFFFFFFF, v[i], lane));
  }

  float* slots_;
  int width_;
  int warps_;
  int turn_ = 0;
};

struct Sum {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};

struct Max {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

}  // namespace tigon::cuda
