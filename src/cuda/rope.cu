#include "kernels/rope.h"

#include <algorithm>
#include <type_traits>

#include "cuda/config/rope.h"
#include "cuda/device.h"
#include "cuda/dispatch.cuh"
#include "cuda/vector.cuh"
#include "kernels/registry.h"

namespace tigon::cuda {
namespace {

/// Where N pairs lie in a row: two vectors, of either half or side by side.
struct PairVectors {
  int a;
  int b;
};

template <int N>
__device__ __forceinline__ PairVectors pair_vectors(const Rope& p, int pair) {
  if (p.interleaved) return {2 * pair, 2 * pair + N};
  return {pair, pair + static_cast<int>(p.pairs)};
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

/// cos or sin of N pairs, for the first and the second feature of each, as they lie in the table.
/// A: the table's type, or float for what is converted when it is read.
template <class A, int N, bool kInterleaved>
struct Angles {
  Vector<A, N> a;
  Vector<A, N> b;

  __device__ __forceinline__ void load(const Rope& p, const RowView& table, std::int64_t row_at,
                                       int pair) {
    if (p.per_pair) {
      read(table, row_at + pair * table.col_stride, a);
      b = a;
      return;
    }
    const PairVectors at = pair_vectors<N>(p, pair);
    read(table, row_at + at.a * table.col_stride, a);
    read(table, row_at + at.b * table.col_stride, b);
  }

  __device__ __forceinline__ void get(const Rope& p, float (&first)[N], float (&second)[N]) {
    a.keep_packed();
    b.keep_packed();
    a.get(first);
    b.get(second);
    if (kInterleaved && !p.per_pair) separate(first, second);
  }

 private:
  __device__ __forceinline__ static void read(const RowView& table, std::int64_t at,
                                              Vector<A, N>& out) {
    if constexpr (std::is_same_v<A, float>) {
      float values[N];
      tigon::cuda::load(table, at, values);
      out.set(values);
    } else {
      out.load(static_cast<const A*>(table.data) + at);
    }
  }
};

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

/// The heads of one token that a thread turns: every `step`-th of q or of k.
template <class T, int N>
struct TokenHeads {
  const T* x;  // of the first one
  T* y;
  std::int64_t x_step;
  std::int64_t y_step;
  int x_col;
  int y_col;
  int count;

  __device__ __forceinline__ TokenHeads(const RopeHeads& heads, std::int64_t b, std::int64_t t,
                                        int first, int step) {
    const auto at = [&](const RowView& v) {
      return b * v.strides[0] + t * v.strides[1] + first * v.strides[2];
    };
    x = static_cast<const T*>(heads.x.data) + at(heads.x);
    y = static_cast<T*>(heads.y.data) + at(heads.y);
    x_step = step * heads.x.strides[2];
    y_step = step * heads.y.strides[2];
    x_col = N > 1 ? 1 : static_cast<int>(heads.x.col_stride);
    y_col = N > 1 ? 1 : static_cast<int>(heads.y.col_stride);
    count = (static_cast<int>(heads.count) - first + step - 1) / step;
  }
};

/// Changes kMany vectors, at these features, of all heads: turn(values). kRopeInFlight heads are
/// in flight; meanwhile() is called once, behind the first loads.
template <class T, int N, int kMany, class Meanwhile, class Turn>
__device__ __forceinline__ void turn_heads(const TokenHeads<T, N>& heads, const int (&at)[kMany],
                                           Meanwhile meanwhile, Turn turn) {
  const T* x = heads.x;
  T* y = heads.y;
#pragma unroll 1
  for (int done = 0; done < heads.count; done += kRopeInFlight) {
    Vector<T, N> held[kRopeInFlight][kMany];
#pragma unroll
    for (int h = 0; h < kRopeInFlight; ++h) {
      if (done + h >= heads.count) break;
#pragma unroll
      for (int i = 0; i < kMany; ++i) held[h][i].load(x + at[i] * heads.x_col);
      x += heads.x_step;
    }
    if (done == 0) meanwhile();
#pragma unroll
    for (int h = 0; h < kRopeInFlight; ++h) {
      if (done + h >= heads.count) break;
      float values[kMany][N];
#pragma unroll
      for (int i = 0; i < kMany; ++i) held[h][i].get(values[i]);
      turn(values);
#pragma unroll
      for (int i = 0; i < kMany; ++i) store(y + at[i] * heads.y_col, values[i]);
      y += heads.y_step;
    }
  }
}

template <class T, class A, bool kInterleaved, int N>
__device__ __forceinline__ void rotate_pairs(const Rope& p, const TokenHeads<T, N>& heads,
                                             std::int64_t b, std::int64_t position, bool valid,
                                             int pair) {
  Angles<A, N, kInterleaved> cos{};
  Angles<A, N, kInterleaved> sin{};
  const auto load_angles = [&] {
    if (!valid) return;
    cos.load(p, p.cos, b * p.cos.strides[0] + position * p.cos.strides[1], pair);
    sin.load(p, p.sin, b * p.sin.strides[0] + position * p.sin.strides[1], pair);
  };
  const PairVectors at = pair_vectors<N>(p, pair);
  turn_heads<T, N>(heads, {at.a, at.b}, load_angles, [&](auto& values) {
    auto& u = values[0];
    auto& v = values[1];
    float cos_u[N];
    float cos_v[N];
    float sin_u[N];
    float sin_v[N];
    cos.get(p, cos_u, cos_v);
    sin.get(p, sin_u, sin_v);
    if constexpr (kInterleaved) separate(u, v);
#pragma unroll
    for (int i = 0; i < N; ++i) {  // fused products by name: the same bits at every N
      const float from_v = p.transposed ? sin_v[i] : -sin_u[i];
      const float from_u = p.transposed ? -sin_u[i] : sin_v[i];
      const float turned = fmaf(v[i], from_v, u[i] * cos_u[i]);
      v[i] = fmaf(u[i], from_u, v[i] * cos_v[i]);
      u[i] = turned;
    }
    if constexpr (kInterleaved) interleave(u, v);
    if (!valid) {
      fill(u, NAN);
      fill(v, NAN);
    }
  });
}

/// Threads of a token: those with threadIdx.y < q_rows turn heads of q, the others k's.
/// kInterleaved: vectors hold whole pairs, one feature beside the other.
template <class T, class A, int N, bool kInterleaved>
__global__ void __launch_bounds__(kRopeThreads, 2) rotate(const Rope p, const int q_rows) {
  const auto rotated = static_cast<int>(p.pairs / N);
  const int slots = rotated + static_cast<int>((p.head_dim - 2 * p.pairs) / N);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.z;
  const auto row = static_cast<int>(threadIdx.y);
  const bool is_q = row < q_rows;
  const RopeHeads& side = is_q ? p.q : p.k;
  for (std::int64_t b = blockIdx.y; b < p.batch; b += gridDim.y) {
    for (std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * blockDim.z + threadIdx.z;
         t < p.tokens; t += step) {
      const std::int64_t position = position_of(p, b, t);
      const bool valid = position >= 0 && position < p.positions;
      const TokenHeads<T, N> heads(side, b, t, is_q ? row : row - q_rows,
                                   is_q ? q_rows : static_cast<int>(blockDim.y) - q_rows);
      for (auto slot = static_cast<int>(threadIdx.x); slot < slots;
           slot += static_cast<int>(blockDim.x)) {
        if (slot < rotated) {
          rotate_pairs<T, A, kInterleaved>(p, heads, b, position, valid, slot * N);
          continue;
        }
        const auto copied = static_cast<int>(2 * p.pairs) + (slot - rotated) * N;
        turn_heads<T, N>(
            heads, {copied}, [] {},
            [&](auto& values) {
              if (!valid) fill(values[0], NAN);
            });
      }
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
  if (p.batch == 0 || p.tokens == 0 || p.q.count + p.k.count == 0 || p.head_dim == 0) return;
  dispatch(p.q.x.dtype, vectorised(p), [&]<class T, int N>() {
    const RopeLaunch launch =
        choose_rope_launch(p.tokens, p.q.count, p.k.count, (p.head_dim - p.pairs) / N);
    const dim3 blocks(launch.blocks, static_cast<unsigned>(std::min<std::int64_t>(p.batch, 65535)));
    auto kernel = rotate<T, float, N, false>;
    if constexpr (N > 1) {
      const bool same = p.cos.dtype == dtype_of<T>;
      if (p.interleaved)
        kernel = same ? rotate<T, T, N, true> : rotate<T, float, N, true>;
      else if (same)
        kernel = rotate<T, T, N, false>;
    }
    kernel<<<blocks, dim3(launch.slots, launch.q_rows + launch.k_rows, launch.tokens), 0,
             static_cast<cudaStream_t>(ctx.stream)>>>(p, launch.q_rows);
  });
  check(cudaGetLastError(), p.transposed ? "rope_backward" : "rope_forward");
}

const RegisterKernel<Rope> kRope(DeviceType::cuda, {.launch = launch_rope});

}  // namespace
}  // namespace tigon::cuda
