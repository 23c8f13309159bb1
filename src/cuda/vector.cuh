#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "base/rows.h"

// The vocabulary of the CUDA kernels, first half: elements and 16-byte vectors of them.
namespace tigon::cuda {

template <class T>
inline constexpr DType dtype_of = DType::float32;
template <>
inline constexpr DType dtype_of<__nv_bfloat16> = DType::bfloat16;
template <>
inline constexpr DType dtype_of<__half> = DType::float16;

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }

template <class T>
__device__ __forceinline__ T from_float(float v);
template <>
__device__ __forceinline__ float from_float<float>(float v) {
  return v;
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float v) {
  return __float2bfloat16_rn(v);
}
template <>
__device__ __forceinline__ __half from_float<__half>(float v) {
  return __float2half_rn(v);
}

/// N elements moved by the fewest accesses of at most 16 bytes; `p` must be aligned to them.
template <class T, int N>
struct Vector {
  static constexpr int kBytes = static_cast<int>(sizeof(T)) * N;
  static constexpr int kAlign = kBytes < 16 ? kBytes : 16;
  struct alignas(kAlign) {
    T v[N];
  } raw;

  __device__ __forceinline__ void load(const T* p) {
    raw = *reinterpret_cast<const decltype(raw)*>(p);
  }
  __device__ __forceinline__ void store(T* p) const { *reinterpret_cast<decltype(raw)*>(p) = raw; }
};

template <class T, int N>
__device__ __forceinline__ void load(const T* p, float (&out)[N]) {
  Vector<T, N> vec;
  vec.load(p);
#pragma unroll
  for (int i = 0; i < N; ++i) out[i] = to_float(vec.raw.v[i]);
}

template <class T, int N>
__device__ __forceinline__ void store(T* p, const float (&in)[N]) {
  Vector<T, N> vec;
#pragma unroll
  for (int i = 0; i < N; ++i) vec.raw.v[i] = from_float<T>(in[i]);
  vec.store(p);
}

/// For what is not read again soon: evicted first, so that L2 keeps what is.
template <class T, int N>
__device__ __forceinline__ void store_streaming(T* p, const float (&in)[N]) {
  if constexpr (sizeof(T) * N == 16) {
    Vector<T, N> vec;
#pragma unroll
    for (int i = 0; i < N; ++i) vec.raw.v[i] = from_float<T>(in[i]);
    __stcs(reinterpret_cast<uint4*>(p), *reinterpret_cast<const uint4*>(&vec.raw));
  } else {
    store(p, in);
  }
}

/// The same for a view whose type is known at run time only; `at` in elements from view.data.
template <int N>
__device__ __forceinline__ void load(const RowView& view, std::int64_t at, float (&out)[N]) {
  switch (view.dtype) {
    case DType::bfloat16: return load(static_cast<const __nv_bfloat16*>(view.data) + at, out);
    case DType::float16: return load(static_cast<const __half*>(view.data) + at, out);
    default: return load(static_cast<const float*>(view.data) + at, out);
  }
}

template <int N>
__device__ __forceinline__ void store(const RowView& view, std::int64_t at, const float (&in)[N]) {
  switch (view.dtype) {
    case DType::bfloat16: return store(static_cast<__nv_bfloat16*>(view.data) + at, in);
    case DType::float16: return store(static_cast<__half*>(view.data) + at, in);
    default: return store(static_cast<float*>(view.data) + at, in);
  }
}

/// N values of a [cols] vector from column `col` on, all `value` where it is absent.
template <int N>
__device__ __forceinline__ void load_or(const RowView& view, float value, std::int64_t col,
                                        float (&out)[N]) {
  if (view) return load(view, col * view.col_stride, out);
#pragma unroll
  for (int i = 0; i < N; ++i) out[i] = value;
}

/// A view known to hold T: the stream a kernel is templated on.
template <class T, int N>
__device__ __forceinline__ void load_as(const RowView& view, std::int64_t at, float (&out)[N]) {
  load(static_cast<const T*>(view.data) + at, out);
}

template <class T, int N>
__device__ __forceinline__ void store_as(const RowView& view, std::int64_t at,
                                         const float (&in)[N]) {
  store(static_cast<T*>(view.data) + at, in);
}

template <class T>
__device__ __forceinline__ float round_as(float v) {
  return to_float(from_float<T>(v));
}

}  // namespace tigon::cuda
