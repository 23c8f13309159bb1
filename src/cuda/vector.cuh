#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

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

/// Two elements in one word, the first in the lower half: one instruction packs both, one unpacks
/// each.
template <class T>
__device__ __forceinline__ std::uint32_t pack(float a, float b);
template <>
__device__ __forceinline__ std::uint32_t pack<__nv_bfloat16>(float a, float b) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
template <>
__device__ __forceinline__ std::uint32_t pack<__half>(float a, float b) {
  const __half2 pair = __floats2half2_rn(a, b);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

template <class T>
__device__ __forceinline__ void unpack(std::uint32_t word, float& a, float& b);
template <>
__device__ __forceinline__ void unpack<__nv_bfloat16>(std::uint32_t word, float& a, float& b) {
  a = __uint_as_float(word << 16);
  b = __uint_as_float(word & 0xFFFF0000U);
}
template <>
__device__ __forceinline__ void unpack<__half>(std::uint32_t word, float& a, float& b) {
  const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&word));
  a = pair.x;
  b = pair.y;
}

/// N elements as they lie in memory, moved by the fewest accesses of at most 16 bytes; pointers
/// must be aligned to them.
template <class T, int N>
struct Vector {
  static constexpr int kBytes = static_cast<int>(sizeof(T)) * N;
  static constexpr int kWords = kBytes / 4;
  static_assert(kBytes % 4 == 0);
  struct alignas(kBytes < 16 ? kBytes : 16) Words {
    std::uint32_t w[kWords];
  } words;

  __device__ __forceinline__ void load(const T* p) { words = *reinterpret_cast<const Words*>(p); }
  __device__ __forceinline__ void store(T* p) const { *reinterpret_cast<Words*>(p) = words; }

  __device__ __forceinline__ void get(float (&out)[N]) const {
    if constexpr (std::is_same_v<T, float>) {
#pragma unroll
      for (int i = 0; i < N; ++i) out[i] = __uint_as_float(words.w[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kWords; ++i) unpack<T>(words.w[i], out[2 * i], out[2 * i + 1]);
    }
  }

  __device__ __forceinline__ void set(const float (&in)[N]) {
    if constexpr (std::is_same_v<T, float>) {
#pragma unroll
      for (int i = 0; i < N; ++i) words.w[i] = __float_as_uint(in[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kWords; ++i) words.w[i] = pack<T>(in[2 * i], in[2 * i + 1]);
    }
  }
};

template <class T, int N>
__device__ __forceinline__ void load(const T* p, float (&out)[N]) {
  if constexpr (N == 1) {
    out[0] = to_float(*p);
  } else {
    Vector<T, N> vec;
    vec.load(p);
    vec.get(out);
  }
}

template <class T, int N>
__device__ __forceinline__ void store(T* p, const float (&in)[N]) {
  if constexpr (N == 1) {
    *p = from_float<T>(in[0]);
  } else {
    Vector<T, N> vec;
    vec.set(in);
    vec.store(p);
  }
}

/// For what is not read again soon: evicted first, so that L2 keeps what is.
template <class T, int N>
__device__ __forceinline__ void store_streaming(T* p, const float (&in)[N]) {
  if constexpr (sizeof(T) * N == 16) {
    Vector<T, N> vec;
    vec.set(in);
    const auto& w = vec.words.w;
    __stcs(reinterpret_cast<uint4*>(p), make_uint4(w[0], w[1], w[2], w[3]));
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

template <class T, int N>
__device__ __forceinline__ void round_as(float (&v)[N]) {
  if constexpr (N == 1) {
    v[0] = round_as<T>(v[0]);
  } else {
    Vector<T, N> vec;
    vec.set(v);
    vec.get(v);
  }
}

}  // namespace tigon::cuda
