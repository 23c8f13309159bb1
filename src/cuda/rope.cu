#include "kernels/rope.h"

#include <cuda_pipeline.h>

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

/// Pairs are worked on by parts of two vectors, half of their elements each.
template <int N>
inline constexpr int kParts = N > 1 ? 2 : 1;

/// N pairs of features, or what belongs to them in a table: two vectors. kInterleaved: each holds
/// whole pairs, a0 b0 a1 b1 ..; else one has the a's and one the b's.
template <class T, int N, bool kInterleaved>
struct Pairs {
  static constexpr int kPart = N / kParts<N>;  // pairs

  Vector<T, N> vectors[2];

  __device__ __forceinline__ void get(int part, float (&a)[kPart], float (&b)[kPart]) const {
    if constexpr (kInterleaved) {
      float both[N];
      vectors[part].get(both);
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
        a[i] = both[2 * i];
        b[i] = both[2 * i + 1];
      }
    } else {
      vectors[0].get_part(part, a);
      vectors[1].get_part(part, b);
    }
  }

  __device__ __forceinline__ void set(int part, const float (&a)[kPart], const float (&b)[kPart]) {
    if constexpr (kInterleaved) {
      float both[N];
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
        both[2 * i] = a[i];
        both[2 * i + 1] = b[i];
      }
      vectors[part].set(both);
    } else {
      vectors[0].set_part(part, a);
      vectors[1].set_part(part, b);
    }
  }
};

/// cos or sin of N pairs. A: the table's type, or float for what is converted when it is read.
template <class A, int N, bool kInterleaved>
struct Angles {
  Pairs<A, N, kInterleaved> pairs;

  __device__ __forceinline__ void load(const Rope& p, const RowView& table, std::int64_t row_at,
                                       int pair) {
    if (p.per_pair) {
      read(table, row_at + pair * table.col_stride, pairs.vectors[0]);
      pairs.vectors[1] = pairs.vectors[0];
      return;
    }
    const PairVectors at = pair_vectors<N>(p, pair);
    read(table, row_at + at.a * table.col_stride, pairs.vectors[0]);
    read(table, row_at + at.b * table.col_stride, pairs.vectors[1]);
  }

  __device__ __forceinline__ void get(const Rope& p, int part, float (&a)[N / kParts<N>],
                                      float (&b)[N / kParts<N>]) const {
    if (kInterleaved && p.per_pair) {
      pairs.vectors[0].get_part(part, a);
      pairs.vectors[0].get_part(part, b);
    } else {
      pairs.get(part, a, b);
    }
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

/// The heads of one token that a thread turns: every `step`-th of q or of k.
template <class T, int N>
struct TokenHeads {
  const T* x;  // of the first one
  T* y;
  std::int64_t x_step;
  std::int64_t y_step;
  std::int64_t x_col;
  std::int64_t y_col;
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
    x_col = N > 1 ? 1 : heads.x.col_stride;
    y_col = N > 1 ? 1 : heads.y.col_stride;
    count = (static_cast<int>(heads.count) - first + step - 1) / step;
  }
};

/// Changes kMany vectors, at these features, of all heads: turn(vectors). kRopeHeads heads at a
/// time are on their way to places of the thread's own in shared memory, which takes no registers;
/// single elements are loaded as they are needed.
template <class T, int N, int kMany, class Turn>
__device__ __forceinline__ void turn_heads(const TokenHeads<T, N>& heads, const int (&at)[kMany],
                                           Vector<T, N>* places, Turn turn) {
  const T* x = heads.x;
  T* y = heads.y;
  const auto finish = [&](Vector<T, N>(&vectors)[kMany]) {
    turn(vectors);
#pragma unroll
    for (int i = 0; i < kMany; ++i) vectors[i].store(y + at[i] * heads.y_col);
    y += heads.y_step;
  };
  if constexpr (N > 1) {
#pragma unroll 1
    for (int done = 0; done < heads.count; done += kRopeHeads) {
      const int some = min(kRopeHeads, heads.count - done);
#pragma unroll
      for (int h = 0; h < kRopeHeads; ++h) {
        if (h >= some) break;
#pragma unroll
        for (int i = 0; i < kMany; ++i)
          __pipeline_memcpy_async(places + (2 * h + i) * kRopeThreads, x + at[i],
                                  sizeof(Vector<T, N>));
        x += heads.x_step;
      }
      __pipeline_commit();
      turn.prepare();  // behind the loads
      __pipeline_wait_prior(0);
#pragma unroll 1
      for (int h = 0; h < some; ++h) {
        Vector<T, N> vectors[kMany];
#pragma unroll
        for (int i = 0; i < kMany; ++i) vectors[i] = places[(2 * h + i) * kRopeThreads];
        finish(vectors);
      }
    }
  } else {
    turn.prepare();
#pragma unroll 1
    for (int h = 0; h < heads.count; ++h) {
      Vector<T, N> vectors[kMany];
#pragma unroll
      for (int i = 0; i < kMany; ++i) vectors[i].load(x + at[i] * heads.x_col);
      x += heads.x_step;
      finish(vectors);
    }
  }
}

template <class T, class A, int N, bool kInterleaved>
struct Rotate {
  const Rope& p;
  std::int64_t b;
  std::int64_t position;  // or -1
  int pair;
  Angles<A, N, kInterleaved> cos{};
  Angles<A, N, kInterleaved> sin{};

  __device__ __forceinline__ void prepare() {
    if (position < 0) return;
    cos.load(p, p.cos, b * p.cos.strides[0] + position * p.cos.strides[1], pair);
    sin.load(p, p.sin, b * p.sin.strides[0] + position * p.sin.strides[1], pair);
  }

  __device__ __forceinline__ void operator()(Vector<T, N> (&vectors)[2]) const {
    constexpr int kPart = N / kParts<N>;
    Pairs<T, N, kInterleaved> x{{vectors[0], vectors[1]}};
#pragma unroll
    for (int part = 0; part < kParts<N>; ++part) {
      float u[kPart];
      float v[kPart];
      float cos_u[kPart];
      float cos_v[kPart];
      float sin_u[kPart];
      float sin_v[kPart];
      x.get(part, u, v);
      cos.get(p, part, cos_u, cos_v);
      sin.get(p, part, sin_u, sin_v);
#pragma unroll
      for (int i = 0; i < kPart; ++i) {  // fused products by name: the same bits at every N
        const float from_v = p.transposed ? sin_v[i] : -sin_u[i];
        const float from_u = p.transposed ? -sin_u[i] : sin_v[i];
        const float turned = fmaf(v[i], from_v, u[i] * cos_u[i]);
        v[i] = position < 0 ? NAN : fmaf(u[i], from_u, v[i] * cos_v[i]);
        u[i] = position < 0 ? NAN : turned;
      }
      x.set(part, u, v);
    }
    vectors[0] = x.vectors[0];
    vectors[1] = x.vectors[1];
  }
};

template <class T, int N>
struct Copy {
  bool valid;

  __device__ __forceinline__ void prepare() const {}
  __device__ __forceinline__ void operator()(Vector<T, N> (&vectors)[1]) const {
    if (!valid) vectors[0] = Vector<T, N>::filled(NAN);
  }
};

/// A block has some tokens of one batch item. Of the threads of a token, those with threadIdx.y <
/// q_rows turn heads of q, the others k's. kInterleaved: vectors hold whole pairs.
template <class T, class A, int N, bool kInterleaved>
__global__ void __launch_bounds__(kRopeThreads, 3) rotate(const Rope p, const int q_rows) {
  __shared__ Vector<T, N> shared[N > 1 ? 2 * kRopeHeads * kRopeThreads : 1];
  Vector<T, N>* const places =
      shared + (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * blockDim.z + threadIdx.z;
  const std::int64_t b = static_cast<std::int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  if (t >= p.tokens || b >= p.batch) return;
  const auto row = static_cast<int>(threadIdx.y);
  const bool is_q = row < q_rows;
  const TokenHeads<T, N> heads(is_q ? p.q : p.k, b, t, is_q ? row : row - q_rows,
                               is_q ? q_rows : static_cast<int>(blockDim.y) - q_rows);
  std::int64_t position = position_of(p, b, t);
  if (position < 0 || position >= p.positions) position = -1;
  const auto rotated = static_cast<int>(p.pairs / N);
  const int slots = rotated + static_cast<int>((p.head_dim - 2 * p.pairs) / N);
#pragma unroll 1
  for (auto slot = static_cast<int>(threadIdx.x); slot < slots;
       slot += static_cast<int>(blockDim.x)) {
    if (slot < rotated) {
      const PairVectors at = pair_vectors<N>(p, slot * N);
      turn_heads<T, N>(heads, {at.a, at.b}, places,
                       Rotate<T, A, N, kInterleaved>{p, b, position, slot * N});
    } else {
      turn_heads<T, N>(heads, {static_cast<int>(2 * p.pairs) + (slot - rotated) * N}, places,
                       Copy<T, N>{position >= 0});
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
        choose_rope_launch(p.batch, p.tokens, p.q.count, p.k.count, (p.head_dim - p.pairs) / N);
    auto kernel = rotate<T, float, N, false>;
    if constexpr (N > 1) {
      const bool same = p.cos.dtype == dtype_of<T>;
      if (p.interleaved)
        kernel = same ? rotate<T, T, N, true> : rotate<T, float, N, true>;
      else if (same)
        kernel = rotate<T, T, N, false>;
    }
    kernel<<<dim3(launch.blocks, launch.batches, launch.batch_groups),
             dim3(launch.slots, launch.q_rows + launch.k_rows, launch.tokens), 0,
             static_cast<cudaStream_t>(ctx.stream)>>>(p, launch.q_rows);
  });
  check(cudaGetLastError(), p.transposed ? "rope_backward" : "rope_forward");
}

const RegisterKernel<Rope> kRope(DeviceType::cuda, {.launch = launch_rope});

}  // namespace
}  // namespace tigon::cuda
