#pragma once

// The vocabulary of the CUDA kernels, second half: reductions over the threads of one row.
namespace tigon::cuda {

inline constexpr int kWarp = 32;

/// Reduces over the `width` threads (a power of two) that share threadIdx.y; every one of them gets
/// the result. Wider than a warp: `shared` holds blockDim.y * (width / 32) floats, and all threads
/// of the block must call. Fixed order.
template <class Op>
__device__ __forceinline__ float reduce_row(float v, int width, float* shared, Op op) {
  for (int lane = min(width, kWarp) / 2; lane > 0; lane /= 2)
    v = op(v, __shfl_xor_sync(0xFFFFFFFF, v, lane));
  if (width <= kWarp) return v;
  const int warps = width / kWarp;
  float* row = shared + threadIdx.y * warps;
  __syncthreads();  // the last reduction's values may still be being read
  if (threadIdx.x % kWarp == 0) row[threadIdx.x / kWarp] = v;
  __syncthreads();
  v = row[0];
  for (int i = 1; i < warps; ++i) v = op(v, row[i]);
  return v;
}

struct Sum {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};

struct Max {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

}  // namespace tigon::cuda
