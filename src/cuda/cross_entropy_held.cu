#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "cuda/cluster_launch.h"
#include "cuda/config/cross_entropy.h"
#include "cuda/cross_entropy.cuh"
#include "cuda/device.h"
#include "cuda/dispatch.cuh"
#include "cuda/held_logits.cuh"

namespace tigon::cuda {
namespace {

/// What is read of a row while the block still works on the row before it.
struct RowEdges {
  float z_label = NAN;     // in the threads that need it
  float edge = -INFINITY;  // this thread's single element
};

/// A cluster for every row, and then for the next one. Statistics: what label smoothing and
/// accuracy need too, at twice the registers.
template <class T, int N, bool kStatistics>
__global__ void __launch_bounds__(kLogitThreads,
                                  kLogitThreadsPerSm / kLogitThreads / (kStatistics ? 2 : 1))
    forward_held(CrossEntropyForward p, const int cluster_bits) {
  extern __shared__ uint4 staged[];
  __shared__ Cluster::Shared exchanged;
  __shared__ std::uint64_t arrived;
  p.in.rows.axes = 1;  // as launched: leaves no division in what follows
  const CrossEntropyRows& in = p.in;
  const auto rows = static_cast<int>(in.rows.count);
  const auto cols = static_cast<int>(in.cols);
  const auto step = static_cast<int>(gridDim.x >> cluster_bits);
  Cluster cluster(cluster_bits, exchanged);
  RowAhead<T, N> ahead(staged, arrived);
  const bool first = cluster.rank() == 0 && threadIdx.x == 0;
  const float scale = in.map.outer;
  const float scale2 = scale * kLog2E;
  const auto classes = static_cast<float>(cols);
  const float divisor = p.divisor == nullptr ? 1.0F : *p.divisor;

  int row = static_cast<int>(blockIdx.x >> cluster_bits);
  Label next_label(in, row, true);
  const auto label_of = [&](int of) { return of < rows ? Label::load(in, of) : 0; };
  std::int64_t coming = label_of(row + step);  // two rows ahead: nobody waits for it
  RowEdges next;
  // Asks for a row that counts. A single element and the label's logit are there before any block
  // overwrites the row: what the blocks exchange depends on them.
  const auto fetch = [&](int of) {
    if (!next_label.counts) return;
    const T* z = row_of<const T>(in.logits, in.rows, of);
    const RowPart<T, N> part(z, cols, cluster);
    ahead.fetch(z, part);
    next.z_label = next_label.known && (first || kStatistics) ? to_float(z[next_label.value]) : NAN;
    next.edge = part.edge_column < 0 ? -INFINITY : to_float(z[part.edge_column]);
  };
  fetch(row);
  cluster.ready();
  for (; row < rows; row += step) {
    const Label label = next_label;
    const RowEdges edges = next;
    const T* z = row_of<const T>(in.logits, in.rows, row);
    T* out = p.dlogits ? row_of<T>(p.dlogits, in.rows, row) : nullptr;
    const RowPart<T, N> part(z, cols, cluster);
    HeldLogits<T, N> held(part);
    if (label.counts) held.load(ahead.wait(z, part), edges.edge);
    next_label = Label::read(in, coming, row + step < rows);
    coming = label_of(row + 2 * step);
    if (label.counts) __syncthreads();  // nobody reads what the next row overwrites
    fetch(row + step);
    if (!label.counts) {
      if (first) RowLoss{}.write(p, row, label, 0.0F, 0.0F);
      if (out == nullptr) continue;
      held.for_each_column(out, [&](auto width, T* to) {
        const float zeros[width.value] = {};
        store_streaming(to, zeros);
      });
      continue;
    }
    const float label_weight = label.known ? class_weight(in.weight, label.value) : NAN;
    const float row_weight = p.row_weight ? at_row(p.row_weight, in.rows, row) : 1.0F;
    const int target = label.known ? static_cast<int>(label.value) : -1;

    RowSummary parts[Cluster::kSlots / kWarp];
    RowSummary mine[1] = {held.summarise(scale2)};
    if constexpr (kStatistics) {
      held.visit(out, [&](auto, T*, const auto& v) {
        for (const float element : v) mine[0].total += element;
      });
      mine[0].beaten = held.beats(edges.z_label, target) ? 1.0F : 0.0F;
    }
    mine[0] = combine_warp<kStatistics>(mine, scale2);
    // The label's logit, from the first block's first warp to all: what waits for its load is sent
    // before any block overwrites the row.
    if constexpr (!kStatistics) mine[0].beaten = __shfl_sync(0xFFFFFFFF, edges.z_label, 0);
    cluster.exchange(mine[0], parts);
    const float z_label = kStatistics ? edges.z_label : __shfl_sync(0xFFFFFFFF, parts[0].beaten, 0);
    const RowSummary all = combine_warp<kStatistics>(parts, scale2);

    const float log_sum = logf(all.sum);
    const float largest = scale * all.top;
    if (first) {
      const RowLoss loss{scale * z_label, largest, log_sum, scale * all.total, classes, all.beaten};
      loss.write(p, row, label, label_weight, row_weight);
    }
    if (out == nullptr) continue;
    const Gradient g(in, label_weight, classes, largest + log_sum, row_weight / divisor);
    const Exponent exponent(all.top, scale2);
    const float softmax = g.factor * __fdividef(g.softmax, all.sum) * exponent.correction();
    const float smooth = g.factor * g.smooth;
    exponent.with([&](auto of) {
      held.visit(out, [&](auto width, T* to, auto& v) {
#pragma unroll
        for (int i = 0; i < width.value; ++i) {
          v[i] = softmax * fast_exp2(of(v[i]));
          if constexpr (kStatistics) v[i] -= smooth;
        }
        store_streaming(to, v);
      });
      if (target < 0 || !held.has(target)) return;
      float at_label = softmax * fast_exp2(of(z_label));
      if constexpr (kStatistics) at_label -= smooth;
      out[target] = from_float<T>(at_label - g.factor * g.target);
    });
  }
}

/// Blocks of a cluster at most: 1 where the device has none, or where this library holds no code
/// for devices that do and the driver has made some from an older architecture's.
int cluster_limit(int device) {
  if (max_cluster(device) == 1) return 1;
  static const int written_for = [] {
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, forward_held<float, 4, false>), "cross_entropy");
    return attributes.ptxVersion;
  }();
  return written_for >= 90 ? max_cluster(device) : 1;
}

/// Whether the rows of both start at the same distance from a 16-byte boundary.
bool are_aligned_alike(const RowView& a, const RowView& b) {
  const auto bytes = static_cast<std::uintptr_t>(size_of(a.dtype));
  const auto start =
      reinterpret_cast<std::uintptr_t>(a.data) - reinterpret_cast<std::uintptr_t>(b.data);
  const auto stride = static_cast<std::uintptr_t>(a.strides[0] - b.strides[0]) * bytes;
  return start % 16 == 0 && stride % 16 == 0;
}

}  // namespace

bool launch_held_cross_entropy(const Context& ctx, const CrossEntropyForward& p) {
  const CrossEntropyRows& in = p.in;
  const bool plain =
      in.rows.axes <= 1 && in.map.inner == 0.0F && in.map.outer > 0.0F && in.map.outer < 1e30F &&
      (!in.weight || in.label_smoothing == 0.0F) && in.logits.col_stride == 1 &&
      (!p.dlogits || (p.dlogits.col_stride == 1 && are_aligned_alike(in.logits, p.dlogits)));
  if (!plain || in.rows.count == 0) return false;
  bool launched = false;
  dispatch(in.logits.dtype, true, [&]<class T, int N>() {
    if constexpr (N > 1) {
      const int device = ctx.device.index;
      const int most = cluster_limit(device);
      const HeldLogitsLaunch launch =
          choose_held_logits_launch(in.rows.count, in.cols, N, most, multiprocessors(device));
      if (launch.threads == 0) return;
      const bool statistics = p.correct || in.label_smoothing > 0.0F;
      const auto kernel = statistics ? forward_held<T, N, true> : forward_held<T, N, false>;
      ClusterLaunch config(static_cast<unsigned>(launch.threads), launch.cluster,
                           most > 1 ? RowAhead<T, N>::bytes(launch.threads) : 0,
                           static_cast<cudaStream_t>(ctx.stream));
      std::int64_t clusters = in.rows.count;
      if (most > 1) {  // rows are fetched ahead: blocks stay
        clusters = std::min<std::int64_t>(clusters, config.resident(kernel, device));
        if (clusters == 0) return;
      }
      config.run("cross_entropy_forward", kernel, static_cast<unsigned>(clusters), p,
                 std::countr_zero(unsigned(launch.cluster)));
      launched = true;
    }
  });
  return launched;
}

}  // namespace tigon::cuda
