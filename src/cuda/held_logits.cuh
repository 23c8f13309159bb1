#pragma once

#include <cfloat>
#include <cstdint>
#include <type_traits>

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
  float beaten = 0.0F;   // 1 when another class comes before the label, where asked for
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

/// The blocks that share a row, 2^bits of them, or one alone where there are no clusters. They
/// exchange summaries through each other's shared memory: every store counts itself on a barrier
/// of the block it goes to, so that nobody waits for anything but these bytes.
class Cluster {
 public:
  static constexpr int kSlots = kMaxCluster * kLogitThreads / kWarp;
  struct Shared {
    float4 slots[kSlots];  // RowSummary's members
    alignas(8) std::uint64_t arrived;
  };

  __device__ __forceinline__ Cluster(int bits, Shared& shared)
      : shared_(shared), size_(1 << bits), rank_(static_cast<int>(blockIdx.x) & (size_ - 1)) {}

  __device__ __forceinline__ int size() const { return size_; }
  __device__ __forceinline__ int rank() const { return rank_; }

  /// Makes the barrier known to all blocks. Call once, early, by all threads of all blocks that
  /// will exchange.
  __device__ __forceinline__ void arrive() const {
#if __CUDA_ARCH__ >= 900
    if (size_ == 1) return;
    if (threadIdx.x == 0) {
      const int bytes = size_ * warps() * static_cast<int>(sizeof(RowSummary));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&shared_.arrived)));
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      asm volatile(
          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&shared_.arrived)),
          "r"(bytes)
          : "memory");
    }
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
  }

  /// Takes one summary per warp, valid in all of its lanes; every lane gets its part of those of
  /// the whole row. Call once.
  template <int kMany>
  __device__ __forceinline__ void exchange(const RowSummary& warp_summary,
                                           RowSummary (&parts)[kMany]) const {
    static_assert(kMany * kWarp == kSlots);
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    float4* const slot = shared_.slots + rank_ * warps() + static_cast<int>(threadIdx.x) / kWarp;
    if (size_ == 1) {
      if (lane == 0)
        *slot = make_float4(warp_summary.top, warp_summary.sum, warp_summary.total,
                            warp_summary.beaten);
      __syncthreads();
    } else {
#if __CUDA_ARCH__ >= 900
      asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
      if (lane < size_) send(warp_summary, slot, lane);
      wait();
#else
      __trap();  // launched as a cluster by code that knows none
#endif
    }
    const int used = size_ * warps();
#pragma unroll
    for (int i = 0; i < kMany; ++i) {
      parts[i] = {};
      if (lane + i * kWarp >= used) continue;
      const float4 found = shared_.slots[lane + i * kWarp];
      parts[i].top = found.x;
      parts[i].sum = found.y;
      parts[i].total = found.z;
      parts[i].beaten = found.w;
    }
  }

 private:
  __device__ __forceinline__ static int warps() { return static_cast<int>(blockDim.x) / kWarp; }

  __device__ __forceinline__ static std::uint32_t address(const void* shared) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  }

#if __CUDA_ARCH__ >= 900
  __device__ __forceinline__ static std::uint32_t address_in(const void* shared, int rank) {
    std::uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address(shared)), "r"(rank));
    return there;
  }

  __device__ __forceinline__ void send(const RowSummary& s, const float4* slot, int rank) const {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
        "[%5];" ::"r"(address_in(slot, rank)),
        "r"(__float_as_uint(s.top)), "r"(__float_as_uint(s.sum)), "r"(__float_as_uint(s.total)),
        "r"(__float_as_uint(s.beaten)), "r"(address_in(&shared_.arrived, rank))
        : "memory");
  }

  __device__ __forceinline__ void wait() const {
    std::uint32_t done = 0;
    while (done == 0)
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(address(&shared_.arrived))
          : "memory");
  }
#endif

  Shared& shared_;
  int size_;
  int rank_;
};

/// A thread's part of a row of T that may start and end off a 16-byte boundary: vectors of N, those
/// of a warp side by side, and in the first block of a cluster at most one of the single elements
/// before and after them.
template <class T, int N>
class HeldLogits {
 public:
  __device__ __forceinline__ HeldLogits(const T* row, std::int64_t cols, const Cluster& cluster) {
    const auto past = static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T));
    const int head = (N - past) % N;  // a row that is held is longer
    const auto vectors = static_cast<int>((cols - head) / N);
    const int part = (vectors + cluster.size() - 1) / cluster.size();
    const int thread = static_cast<int>(threadIdx.x);
    const int own = thread / kWarp * kWarp * kLogitVectors + thread % kWarp;
    const int left = min(part, vectors - part * cluster.rank()) - own;
    first_ = head + (part * cluster.rank() + own) * N;
    count_ = (left + kWarp - 1) / kWarp;
    edge_column_ = -1;
    if (cluster.rank() == 0) {
      const int after = head + vectors * N + thread - N;
      if (thread < head) edge_column_ = thread;
      if (thread >= N && after < cols) edge_column_ = after;
    }
  }

  /// All loads are in flight before the first is used. -Inf where there is nothing.
  __device__ __forceinline__ void load(const T* row) {
    edge_ = edge_column_ < 0 ? -INFINITY : to_float(row[edge_column_]);
    row += first_;
#pragma unroll
    for (int k = 0; k < kLogitVectors; ++k) {
      held_[k] = Vector<T, N>::filled(-INFINITY);
      if (k < count_) held_[k].load_streaming(row + k * kWarp * N);
    }
  }

  /// Calls f(std::integral_constant<int, W>, col) for all W = N or 1 elements that are there.
  template <class F>
  __device__ __forceinline__ void for_each_column(F&& f) const {
#pragma unroll
    for (int k = 0; k < kLogitVectors; ++k)
      if (k < count_) f(std::integral_constant<int, N>(), first_ + k * kWarp * N);
    if (edge_column_ >= 0) f(std::integral_constant<int, 1>(), edge_column_);
  }

  /// The same with a copy of the elements: f(width, col, z).
  template <class F>
  __device__ __forceinline__ void visit(F&& f) {
#pragma unroll
    for (int k = 0; k < kLogitVectors; ++k) {
      if (k >= count_) continue;
      float z[N];
      held_[k].keep_packed();
      held_[k].get(z);
      f(std::integral_constant<int, N>(), first_ + k * kWarp * N, z);
    }
    if (edge_column_ < 0) return;
    float z[1] = {edge_};
    f(std::integral_constant<int, 1>(), edge_column_, z);
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
    row.sum = fast_exp2((edge_ - row.top) * scale2);
#pragma unroll
    for (int k = 0; k < kLogitVectors; ++k) {
      float z[N];
      held_[k].keep_packed();
      held_[k].get(z);
#pragma unroll
      for (int i = 0; i < N; ++i) row.sum += fast_exp2((z[i] - row.top) * scale2);
    }
    return row;
  }

 private:
  Vector<T, N> held_[kLogitVectors];
  float edge_;
  int edge_column_;  // or -1
  int first_;        // column of held_[0]
  int count_;        // of vectors; negative: none
};

}  // namespace tigon::cuda
