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

/// The larger of the lower halves beside the larger of the upper halves.
template <class T>
__device__ __forceinline__ std::uint32_t max_of_pairs(std::uint32_t a, std::uint32_t b) {
  using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
  const Pair top = __hmax2(*reinterpret_cast<const Pair*>(&a), *reinterpret_cast<const Pair*>(&b));
  return *reinterpret_cast<const std::uint32_t*>(&top);
}

inline constexpr float kLog2E = 1.44269504F;

/// 2^v to 2 ulp, in one instruction; 0 below 2^-126.
__device__ __forceinline__ float fast_exp2(float v) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(v));
  return y;
}

/// e^v to 2 ulp near 0 and |v| ulp far from it.
__device__ __forceinline__ float fast_exp(float v) { return fast_exp2(v * kLog2E); }

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

  /// For what is not read again soon: evicted first, so that L2 keeps what is.
  __device__ __forceinline__ void store_streaming(T* p) const {
    if constexpr (kBytes == 16)
      __stcs(reinterpret_cast<uint4*>(p),
             make_uint4(words.w[0], words.w[1], words.w[2], words.w[3]));
    else
      store(p);
  }

  __device__ __forceinline__ static Vector filled(float v) {
    float all[N];
#pragma unroll
    for (int i = 0; i < N; ++i) all[i] = v;
    Vector vec;
    vec.set(all);
    return vec;
  }

  /// For what stays in registers from one pass to the next: makes the compiler forget the elements
  /// it has unpacked, which it would keep, twice the registers, rather than unpack them again.
  __device__ __forceinline__ void keep_packed() {
    if constexpr (!std::is_same_v<T, float>) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) asm volatile("" : "+r"(words.w[i]));
    }
  }

  /// The largest element, of those that are not NaN.
  __device__ __forceinline__ float max() const {
    if constexpr (std::is_same_v<T, float>) {
      float top = __uint_as_float(words.w[0]);
#pragma unroll
      for (int i = 1; i < N; ++i) top = fmaxf(top, __uint_as_float(words.w[i]));
      return top;
    } else {
      std::uint32_t top = words.w[0];
#pragma unroll
      for (int i = 1; i < kWords; ++i) top = max_of_pairs<T>(top, words.w[i]);
      float a;
      float b;
      unpack<T>(top, a, b);
      return fmaxf(a, b);
    }
  }

  __device__ __forceinline__ void get(float (&out)[N]) const {
    if constexpr (std::is_same_v<T, float>) {
#pragma unroll
      for (int i = 0; i < N; ++i) out[i] = __uint_as_float(words.w[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kWords; ++i) unpack<T>(words.w[i], out[2 * i], out[2 * i + 1]);
    }
  }

  /// M of the elements, from the `part` * M-th on.
  template <int M>
  __device__ __forceinline__ void get_part(int part, float (&out)[M]) const {
    if constexpr (std::is_same_v<T, float>) {
#pragma unroll
      for (int i = 0; i < M; ++i) out[i] = __uint_as_float(words.w[part * M + i]);
    } else {
#pragma unroll
      for (int i = 0; i < M / 2; ++i)
        unpack<T>(words.w[part * (M / 2) + i], out[2 * i], out[2 * i + 1]);
    }
  }
  template <int M>
  __device__ __forceinline__ void set_part(int part, const float (&in)[M]) {
    if constexpr (std::is_same_v<T, float>) {
#pragma unroll
      for (int i = 0; i < M; ++i) words.w[part * M + i] = __float_as_uint(in[i]);
    } else {
#pragma unroll
      for (int i = 0; i < M / 2; ++i)
        words.w[part * (M / 2) + i] = pack<T>(in[2 * i], in[2 * i + 1]);
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

/// One element alone.
template <class T>
struct Vector<T, 1> {
  T element;

  __device__ __forceinline__ static Vector filled(float v) { return {from_float<T>(v)}; }
  __device__ __forceinline__ void keep_packed() const {}
  __device__ __forceinline__ void load(const T* p) { element = *p; }
  __device__ __forceinline__ void store(T* p) const { *p = element; }
  __device__ __forceinline__ void store_streaming(T* p) const { *p = element; }
  __device__ __forceinline__ void get(float (&out)[1]) const { out[0] = to_float(element); }
  __device__ __forceinline__ void get_part(int, float (&out)[1]) const { get(out); }
  __device__ __forceinline__ void set_part(int, const float (&in)[1]) { set(in); }
  __device__ __forceinline__ void set(const float (&in)[1]) { element = from_float<T>(in[0]); }
};

template <class T, int N>
__device__ __forceinline__ void load(const T* p, float (&out)[N]) {
  Vector<T, N> vec;
  vec.load(p);
  vec.get(out);
}

template <class T, int N>
__device__ __forceinline__ void store(T* p, const float (&in)[N]) {
  Vector<T, N> vec;
  vec.set(in);
  vec.store(p);
}

template <class T, int N>
__device__ __forceinline__ void store_streaming(T* p, const float (&in)[N]) {
  Vector<T, N> vec;
  vec.set(in);
  vec.store_streaming(p);
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

/// Elements from the start of a row to column `col`; rows of vectors have unit stride.
template <int N>
__device__ __forceinline__ std::int64_t along(const RowView& view, std::int64_t col) {
  return N > 1 ? col : col * view.col_stride;
}

/// One row of a view known to hold T.
template <class T>
__device__ __forceinline__ T* row_of(const RowView& view, const RowSpace& rows, std::int64_t row) {
  return static_cast<T*>(view.data) + view.offset(rows, row);
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
  Vector<T, N> vec;
  vec.set(v);
  vec.get(v);
}

}  // namespace tigon::cuda
