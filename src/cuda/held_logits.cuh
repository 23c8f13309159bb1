#pragma once

#include <cfloat>
#include <cstdint>
#include <type_traits>

#include "cuda/async.cuh"
#include "cuda/config/cross_entropy.h"
#include "cuda/reduce.cuh"
#include "cuda/vector.cuh"

// Rows of a vocabulary on chip: the threads of a cluster of blocks hold one row in registers.
namespace tigon::cuda {

/// What is known of a part of a row z, where x = scale * z with a positive scale.
struct alignas(16) RowSummary {
  float top = -FLT_MAX;  // of z; finite, so that exp(-Inf - top) is 0 in a row of -Inf
  float sum = 0.0F;      // of exp(scale * (z - top))
  float total = 0.0F;    // of z, where asked for
  float beaten = 0.0F;   // 1 when another class comes before the label, where asked for; else what
                         // a warp has to tell the others
};

template <class Op>
__device__ __forceinline__ float reduce_warp(float v, Op op) {
#pragma unroll
  for (int lane = kWarp / 2; lane > 0; lane /= 2) v = op(v, __shfl_xor_sync(0xFFFFFFFF, v, lane));
  return v;
}

/// Over the kMany summaries of every lane of a warp, in a fixed order. kStatistics: total and
/// beaten too. scale2 is scale * log2(e).
template <bool kStatistics, int kMany>
__device__ __forceinline__ RowSummary combine_warp(const RowSummary (&parts)[kMany], float scale2) {
  RowSummary all;
#pragma unroll
  for (int i = 0; i < kMany; ++i) all.top = fmaxf(all.top, parts[i].top);
  all.top = reduce_warp(all.top, Max());
#pragma unroll
  for (int i = 0; i < kMany; ++i) {
    all.sum += parts[i].sum * fast_exp2((parts[i].top - all.top) * scale2);
    all.total += parts[i].total;
    all.beaten = fmaxf(all.beaten, parts[i].beaten);
  }
  all.sum = reduce_warp(all.sum, Sum());
  if constexpr (kStatistics) {
    all.total = reduce_warp(all.total, Sum());
    all.beaten = reduce_warp(all.beaten, Max());
  }
  return all;
}

/// scale2 * (z - top), as one product and sum where it can be: of z and the rounded product of top,
/// which differs by a factor that is the same for all z. correction() takes it out of their powers.
class Exponent {
 public:
  __device__ __forceinline__ Exponent(float top, float scale2)
      : top_(top), scale2_(scale2), product_(top * scale2) {}

  /// f(of), where of(z) is the exponent. Products near the largest float are avoided.
  template <class F>
  __device__ __forceinline__ auto with(F&& f) const {
    if (fits()) return f([&](float z) { return fmaf(z, scale2_, -product_); });
    return f([&](float z) { return (z - top_) * scale2_; });
  }

  __device__ __forceinline__ float correction() const {
    return fits() ? fast_exp2(-fmaf(top_, scale2_, -product_)) : 1.0F;
  }

 private:
  __device__ __forceinline__ bool fits() const { return fabsf(product_) < 1e37F; }

  float top_;
  float scale2_;
  float product_;
};

/// The blocks that share rows, 2^bits of them, or one alone where there are no clusters. For every
/// row they exchange summaries through each other's shared memory: a store counts itself on a
/// barrier of the block it goes to, so that nobody waits for anything but these bytes. Two sets of
/// slots and barriers take turns: who sends for a row has received all of the row before it, so
/// whatever comes for a set belongs to one row.
class Cluster {
 public:
  static constexpr int kSlots = kMaxCluster * kLogitThreads / kWarp;
  struct Shared {
    float4 slots[2][kSlots];  // RowSummary's members
    std::uint64_t arrived[2];
  };

  /// Call by all threads of all blocks; ready() before the first exchange.
  __device__ __forceinline__ Cluster(int bits, Shared& shared)
      : shared_(shared),
        bits_(bits),
        size_(1 << bits),
        rank_(static_cast<int>(blockIdx.x) & (size_ - 1)) {
#if __CUDA_ARCH__ >= 900
    if (size_ == 1) return;
    if (threadIdx.x == 0)
      for (std::uint64_t& barrier : shared_.arrived) ByteBarrier(barrier).init();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
  }

  __device__ __forceinline__ void ready() const {
#if __CUDA_ARCH__ >= 900
    if (size_ > 1) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
  }

  __device__ __forceinline__ int size() const { return size_; }
  __device__ __forceinline__ int rank() const { return rank_; }
  /// A number of things cut into size() shares, rounded up.
  __device__ __forceinline__ int share(int all) const { return (all + size_ - 1) >> bits_; }

  /// Takes one summary per warp, valid in all of its lanes; every lane gets its part of those of
  /// the whole row. Call once per row, in all blocks.
  template <int kMany>
  __device__ __forceinline__ void exchange(const RowSummary& warp_summary,
                                           RowSummary (&parts)[kMany]) {
    static_assert(kMany * kWarp == kSlots);
    const int set = turn_ & 1;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    float4* const slots = shared_.slots[set];
    float4* const own = slots + rank_ * warps() + static_cast<int>(threadIdx.x) / kWarp;
    const int used = size_ * warps();
    if (size_ == 1) {
      if (lane == 0)
        *own = make_float4(warp_summary.top, warp_summary.sum, warp_summary.total,
                           warp_summary.beaten);
      __syncthreads();
    } else {
#if __CUDA_ARCH__ >= 900
      const ByteBarrier barrier(shared_.arrived[set]);
      if (threadIdx.x == 0) barrier.expect(used * static_cast<int>(sizeof(RowSummary)));
      if (lane < size_) send(warp_summary, own, shared_.arrived[set], lane);
      barrier.wait(turn_ >> 1 & 1);
#else
      __trap();  // launched as a cluster by code that knows none
#endif
    }
    ++turn_;
#pragma unroll
    for (int i = 0; i < kMany; ++i) {
      parts[i] = {};
      if (lane + i * kWarp >= used) continue;
      const float4 found = slots[lane + i * kWarp];
      parts[i].top = found.x;
      parts[i].sum = found.y;
      parts[i].total = found.z;
      parts[i].beaten = found.w;
    }
  }

 private:
  __device__ __forceinline__ static int warps() { return static_cast<int>(blockDim.x) / kWarp; }

#if __CUDA_ARCH__ >= 900
  __device__ __forceinline__ static void send(const RowSummary& s, const float4* slot,
                                              const std::uint64_t& barrier, int rank) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
        "[%5];" ::"r"(shared_address_in(slot, rank)),
        "r"(__float_as_uint(s.top)), "r"(__float_as_uint(s.sum)), "r"(__float_as_uint(s.total)),
        "r"(__float_as_uint(s.beaten)), "r"(shared_address_in(&barrier, rank))
        : "memory");
  }
#endif

  Shared& shared_;
  int bits_;
  int size_;
  int rank_;
  int turn_ = 0;
};

/// What a block of a cluster has of a row of T that may start and end off a 16-byte boundary:
/// vectors of N that lie side by side, and in the first block the single elements before and after
/// all vectors.
template <class T, int N>
struct RowPart {
  int first;        // column of its first vector
  int vectors;      // may be 0 in the last blocks
  int edge_column;  // of the single element that this thread has, or -1

  __device__ __forceinline__ RowPart(const T* row, int cols, const Cluster& cluster) {
    const auto past = static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T));
    const int head = (N - past) % N;  // a row that is held is longer
    const int all = (cols - head) / N;
    const int share = cluster.share(all);
    first = head + share * cluster.rank() * N;
    vectors = max(0, min(share, all - share * cluster.rank()));
    edge_column = -1;
    if (cluster.rank() == 0) {
      const int thread = static_cast<int>(threadIdx.x);
      const int after = head + all * N + thread - N;
      if (thread < head) edge_column = thread;
      if (thread >= N && after < cols) edge_column = after;
    }
  }
};

/// The part of the next row on its way to shared memory while the block works on this one. Before
/// compute capability 9.0 nothing is fetched ahead, and threads read device memory themselves.
template <class T, int N>
class RowAhead {
 public:
  static constexpr std::size_t bytes(int threads) {
    return std::size_t{16} * kLogitVectors * threads;
  }

  __device__ __forceinline__ RowAhead(uint4* memory, std::uint64_t& arrived)
      : memory_(memory), arrived_(arrived) {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) ByteBarrier(arrived_).init();
    __syncthreads();
#endif
  }

  /// When all threads of the block have the row before it in registers.
  __device__ __forceinline__ void fetch(const T* row, const RowPart<T, N>& part) const {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x != 0) return;
    const ByteBarrier barrier(arrived_);
    barrier.expect(part.vectors * 16);
    if (part.vectors > 0) copy_bulk(memory_, row + part.first, part.vectors * 16, barrier);
#endif
  }

  /// Waits for the row that was fetched. Its vectors begin where this points.
  __device__ __forceinline__ const T* wait(const T* row, const RowPart<T, N>& part) {
#if __CUDA_ARCH__ >= 900
    ByteBarrier(arrived_).wait(phase_);
    phase_ ^= 1;
    return reinterpret_cast<const T*>(memory_);
#else
    return row + part.first;
#endif
  }

 private:
  uint4* memory_;
  std::uint64_t& arrived_;
  int phase_ = 0;
};

/// A thread's part of a RowPart in registers: vectors, those of a warp side by side, and at most
/// one single element.
template <class T, int N>
class HeldLogits {
 public:
  __device__ __forceinline__ explicit HeldLogits(const RowPart<T, N>& part)
      : edge_column_(part.edge_column) {
    const int thread = static_cast<int>(threadIdx.x);
    own_ = (thread / kWarp * kWarp * kLogitVectors + thread % kWarp) * N;
    first_ = part.first + own_;
    count_ = min(kLogitVectors, (part.vectors - own_ / N + kWarp - 1) / kWarp);
  }

  /// vectors: those of the block. edge: this thread's single element. All loads are in flight
  /// before the first is used. -Inf where there is nothing.
  __device__ __forceinline__ void load(const T* vectors, float edge) {
    edge_ = edge;
    vectors += own_;
    if (count_ >= kLogitVectors) {
#pragma unroll
      for (int k = 0; k < kLogitVectors; ++k) held_[k].load(vectors + k * kWarp * N);
      return;
    }
#pragma unroll
    for (int k = 0; k < kLogitVectors; ++k) {
      held_[k] = Vector<T, N>::filled(-INFINITY);
      if (k < count_) held_[k].load(vectors + k * kWarp * N);
    }
  }

  /// Calls f(std::integral_constant<int, W>, to) for all W = N or 1 elements that are there; to:
  /// where they belong in the row `out`.
  template <class F>
  __device__ __forceinline__ void for_each_column(T* out, F&& f) const {
    T* const to = out + first_;
#pragma unroll
    for (int k = 0; k < kLogitVectors; ++k)
      if (k < count_) f(std::integral_constant<int, N>(), to + k * kWarp * N);
    if (edge_column_ >= 0) f(std::integral_constant<int, 1>(), out + edge_column_);
  }

  /// The same with a copy of the elements: f(width, to, z).
  template <class F>
  __device__ __forceinline__ void visit(T* out, F&& f) {
    T* const to = out + first_;
#pragma unroll
    for (int k = 0; k < kLogitVectors; ++k) {
      if (k >= count_) continue;
      float z[N];
      held_[k].keep_packed();
      held_[k].get(z);
      f(std::integral_constant<int, N>(), to + k * kWarp * N, z);
    }
    if (edge_column_ < 0) return;
    float z[1] = {edge_};
    f(std::integral_constant<int, 1>(), out + edge_column_, z);
  }

  /// Whether this column is among these.
  __device__ __forceinline__ bool has(int column) const {
    const auto offset = static_cast<unsigned>(column - first_);
    return column == edge_column_ ||
           (offset % (kWarp * N) < N && static_cast<int>(offset / (kWarp * N)) < count_);
  }

  /// Whether a larger element is among these, or an equal one before the label's.
  __device__ __forceinline__ bool beats(float z_label, int label) {
    bool found =
        edge_column_ >= 0 && (edge_ > z_label || (edge_ == z_label && edge_column_ < label));
#pragma unroll
    for (int k = 0; k < kLogitVectors; ++k) {
      const int col = first_ + k * kWarp * N;
      if (k >= count_) continue;
      if (static_cast<unsigned>(label - col) < N) {
        float z[N];
        held_[k].keep_packed();
        held_[k].get(z);
#pragma unroll
        for (int i = 0; i < N; ++i) found |= z[i] > z_label || (z[i] == z_label && col + i < label);
      } else {
        const float top = held_[k].max();
        found |= top > z_label || (top == z_label && col < label);
      }
    }
    return found;
  }

  /// Its top and sum.
  __device__ __forceinline__ RowSummary summarise(float scale2) {
    RowSummary row;
    row.top = fmaxf(row.top, edge_);
#pragma unroll
    for (int k = 0; k < kLogitVectors; ++k) row.top = fmaxf(row.top, held_[k].max());
    const Exponent exponent(row.top, scale2);
    row.sum = exponent.with([&](auto of) {
      float sum = fast_exp2(of(edge_));
#pragma unroll
      for (int k = 0; k < kLogitVectors; ++k) {
        float z[N];
        held_[k].keep_packed();
        held_[k].get(z);
#pragma unroll
        for (int i = 0; i < N; ++i) sum += fast_exp2(of(z[i]));
      }
      return sum;
    });
    row.sum *= exponent.correction();
    return row;
  }

 private:
  Vector<T, N> held_[kLogitVectors];
  float edge_ = 0.0F;
  int edge_column_;  // or -1
  int own_;          // elements before this thread's, of its block
  int first_;        // column of held_[0]
  int count_;        // of vectors; 0 or negative: none
};

}  // namespace tigon::cuda
