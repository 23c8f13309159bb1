#include "kernels/rope.h"

#include "cuda/config/rope.h"
#include "cuda/device.h"
#include "cuda/dispatch.cuh"
#include "cuda/vector.cuh"
#include "kernels/registry.h"

namespace tigon::cuda {
namespace {

/// Where N pairs lie in a row: two vectors, of either half or side by side.
struct PairVectors {
  std::int64_t a;
  std::int64_t b;
};

template <int N>
__device__ __forceinline__ PairVectors pair_vectors(const Rope& p, std::int64_t pair) {
  if (p.interleaved) return {2 * pair, 2 * pair + N};
  return {pair, pair + p.pairs};
}

/// Two vectors of neighbours (a0 b0 a1 b1 ..) from and to one of the a's and one of the b's.
template <int N>
__device__ __forceinline__ void separate(float (&a)[N], float (&b)[N]) {
  float all[2 * N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    all[i] = a[i];
    all[N + i] = b[i];
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    a[i] = all[2 * i];
    b[i] = all[2 * i + 1];
  }
}

template <int N>
__device__ __forceinline__ void interleave(float (&a)[N], float (&b)[N]) {
  float all[2 * N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    all[2 * i] = a[i];
    all[2 * i + 1] = b[i];
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    a[i] = all[i];
    b[i] = all[N + i];
  }
}

/// cos or sin of N pairs, for the first and the second feature of each.
template <int N>
__device__ __forceinline__ void load_angles(const Rope& p, const RowView& table, std::int64_t b,
                                            std::int64_t position, std::int64_t pair,
                                            float (&first)[N], float (&second)[N]) {
  const std::int64_t row = b * table.strides[0] + position * table.strides[1];
  if (p.per_pair) {
    load(table, row + pair * table.col_stride, first);
#pragma unroll
    for (int i = 0; i < N; ++i) second[i] = first[i];
    return;
  }
  const PairVectors at = pair_vectors<N>(p, pair);
  load(table, row + at.a * table.col_stride, first);
  load(table, row + at.b * table.col_stride, second);
  if (p.interleaved) separate(first, second);
}

__device__ __forceinline__ std::int64_t position_of(const Rope& p, std::int64_t b, std::int64_t t) {
  const RowView& ids = p.position_ids;
  if (!ids) return t;
  return load_integer(ids, b * ids.strides[0] + t * ids.strides[1]);
}

template <int N>
__device__ __forceinline__ void fill(float (&v)[N], float value) {
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] = value;
}

/// Calls body(x view, offset in x, y view, offset in y) for the heads of q, then k, that this
/// thread has of a token.
template <class Body>
__device__ __forceinline__ void for_each_head(const Rope& p, std::int64_t b, std::int64_t t,
                                              Body body) {
  for (std::int64_t i = threadIdx.y; i < p.q.count + p.k.count; i += blockDim.y) {
    const RopeHeads& heads = i < p.q.count ? p.q : p.k;
    const std::int64_t h = i < p.q.count ? i : i - p.q.count;
    const auto at = [&](const RowView& v) {
      return b * v.strides[0] + t * v.strides[1] + h * v.strides[2];
    };
    body(heads.x, at(heads.x), heads.y, at(heads.y));
  }
}

template <class T, int N>
__device__ __forceinline__ void rotate_pairs(const Rope& p, std::int64_t b, std::int64_t t,
                                             std::int64_t position, bool valid, std::int64_t pair) {
  float cos_a[N];
  float cos_b[N];
  float sin_a[N];
  float sin_b[N];
  if (valid) {
    load_angles(p, p.cos, b, position, pair, cos_a, cos_b);
    load_angles(p, p.sin, b, position, pair, sin_a, sin_b);
  } else {
    fill(cos_a, NAN);
    fill(cos_b, NAN);
    fill(sin_a, NAN);
    fill(sin_b, NAN);
  }
  if (p.transposed) {  // the other feature's sine, and its negative
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float other = -sin_b[i];
      sin_b[i] = -sin_a[i];
      sin_a[i] = other;
    }
  }
  const PairVectors at = pair_vectors<N>(p, pair);
  for_each_head(p, b, t,
                [&](const RowView& x, std::int64_t x_at, const RowView& y, std::int64_t y_at) {
                  float u[N];
                  float v[N];
                  load_as<T>(x, x_at + at.a * x.col_stride, u);
                  load_as<T>(x, x_at + at.b * x.col_stride, v);
                  if (p.interleaved) separate(u, v);
#pragma unroll
                  for (int i = 0; i < N; ++i) {  // fused products by name: the same bits at every N
                    const float a = fmaf(-v[i], sin_a[i], u[i] * cos_a[i]);
                    v[i] = fmaf(u[i], sin_b[i], v[i] * cos_b[i]);
                    u[i] = a;
                  }
                  if (p.interleaved) interleave(u, v);
                  store_as<T>(y, y_at + at.a * y.col_stride, u);
                  store_as<T>(y, y_at + at.b * y.col_stride, v);
                });
}

template <class T, int N>
__device__ __forceinline__ void copy_features(const Rope& p, std::int64_t b, std::int64_t t,
                                              bool valid, std::int64_t feature) {
  for_each_head(p, b, t,
                [&](const RowView& x, std::int64_t x_at, const RowView& y, std::int64_t y_at) {
                  float u[N];
                  load_as<T>(x, x_at + feature * x.col_stride, u);
                  if (!valid) fill(u, NAN);
                  store_as<T>(y, y_at + feature * y.col_stride, u);
                });
}

template <class T, int N>
__global__ void rotate(const Rope p) {
  const std::int64_t rotated = p.pairs / N;
  const std::int64_t slots = rotated + (p.head_dim - 2 * p.pairs) / N;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.z;
  for (std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * blockDim.z + threadIdx.z;
       token < p.batch * p.tokens; token += step) {
    const std::int64_t b = token / p.tokens;
    const std::int64_t t = token - b * p.tokens;
    const std::int64_t position = position_of(p, b, t);
    const bool valid = position >= 0 && position < p.positions;
    for (std::int64_t slot = threadIdx.x; slot < slots; slot += blockDim.x) {
      if (slot < rotated)
        rotate_pairs<T, N>(p, b, t, position, valid, slot * N);
      else
        copy_features<T, N>(p, b, t, valid, 2 * p.pairs + (slot - rotated) * N);
    }
  }
}

bool vectorised(const Rope& p) {
  const std::int64_t width = 16 / size_of(p.q.x.dtype);
  if (p.pairs % width != 0 || p.head_dim % width != 0) return false;
  const RowSpace axes{.axes = 3};
  for (const RowView* v : {&p.q.x, &p.q.y, &p.k.x, &p.k.y})
    if (!is_vectorisable(*v, axes, p.head_dim)) return false;
  const std::int64_t columns = p.per_pair ? p.pairs : 2 * p.pairs;
  return is_vectorisable(p.cos, axes, columns) && is_vectorisable(p.sin, axes, columns);
}

void launch_rope(const Context& ctx, const Rope& p) {
  const std::int64_t tokens = p.batch * p.tokens;
  const std::int64_t heads = p.q.count + p.k.count;
  if (tokens == 0 || heads == 0 || p.head_dim == 0) return;
  dispatch(p.q.x.dtype, vectorised(p), [&]<class T, int N>() {
    const RopeLaunch launch = choose_rope_launch(tokens, heads, (p.head_dim - p.pairs) / N);
    rotate<T, N><<<launch.blocks, dim3(launch.slots, launch.heads, launch.tokens), 0,
                   static_cast<cudaStream_t>(ctx.stream)>>>(p);
  });
  check(cudaGetLastError(), p.transposed ? "rope_backward" : "rope_forward");
}

const RegisterKernel<Rope> kRope(DeviceType::cuda, {.launch = launch_rope});

}  // namespace
}  // namespace tigon::cuda
