#include <cuda_runtime.h>

#include <bit>

#include "cuda/config/cross_entropy.h"
#include "cuda/cross_entropy.cuh"
#include "cuda/device.h"
#include "cuda/dispatch.cuh"
#include "cuda/held_logits.cuh"

namespace tigon::cuda {
namespace {

/// A cluster per row. Statistics: what label smoothing and accuracy need too, at twice the
/// registers.
template <class T, int N, bool kStatistics>
__global__ void __launch_bounds__(kLogitThreads,
                                  kLogitThreadsPerSm / kLogitThreads / (kStatistics ? 2 : 1))
    forward_held(CrossEntropyForward p, const int cluster_bits) {
  p.in.rows.axes = 1;  // as launched: leaves no division in what follows
  const CrossEntropyRows& in = p.in;
  const std::int64_t row = blockIdx.x >> cluster_bits;
  __shared__ Cluster::Shared shared;
  const Cluster cluster(cluster_bits, shared);
  const bool first = cluster.rank() == 0 && threadIdx.x == 0;
  const Label label(in, row, true);
  const T* z = row_of<const T>(in.logits, in.rows, row);
  T* out = p.dlogits ? row_of<T>(p.dlogits, in.rows, row) : nullptr;
  HeldLogits<T, N> held(z, in.cols, cluster);
  if (!label.counts) {
    if (first) RowLoss{}.write(p, row, label, 0.0F, 0.0F);
    if (out == nullptr) return;
    held.for_each_column([&](auto width, int col) {
      const float zeros[width.value] = {};
      store_streaming(out + col, zeros);
    });
    return;
  }
  held.load(z);
  cluster.arrive();
  // Before any block overwrites it: what the blocks exchange depends on it.
  const float z_label = label.known && (first || kStatistics) ? to_float(z[label.value]) : NAN;
  const float label_weight = label.known ? class_weight(in.weight, label.value) : NAN;
  const float row_weight = p.row_weight ? at_row(p.row_weight, in.rows, row) : 1.0F;
  const int target = label.known ? static_cast<int>(label.value) : -1;
  const float scale = in.map.outer;
  const float scale2 = scale * kLog2E;

  RowSummary parts[Cluster::kSlots / kWarp];
  RowSummary mine[1] = {held.summarise(scale2)};
  if constexpr (kStatistics) {
    held.visit([&](auto, int, const auto& v) {
      for (const float element : v) mine[0].total += element;
    });
    mine[0].beaten = held.beats(z_label, target) ? 1.0F : 0.0F;
  }
  mine[0] = combine_warp<kStatistics>(mine, scale2);
  if constexpr (!kStatistics)
    mine[0].beaten = __shfl_sync(0xFFFFFFFF, z_label, 0);  // so that it has been read
  cluster.exchange(mine[0], parts);
  const RowSummary all = combine_warp<kStatistics>(parts, scale2);

  const float log_sum = logf(all.sum);
  const float largest = scale * all.top;
  const auto classes = static_cast<float>(in.cols);
  if (first) {
    const RowLoss loss{scale * z_label, largest, log_sum, scale * all.total, classes, all.beaten};
    loss.write(p, row, label, label_weight, row_weight);
  }
  if (out == nullptr) return;
  const float lse = largest + log_sum;
  const Gradient g(in, label_weight, classes, lse, divided(row_weight, p.divisor));
  const float softmax = g.factor * __fdividef(g.softmax, all.sum);
  const float smooth = g.factor * g.smooth;
  held.visit([&](auto width, int col, auto& v) {
    constexpr int kWidth = width.value;
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      v[i] = fmaf(softmax, fast_exp2((v[i] - all.top) * scale2), -smooth);
    if (static_cast<unsigned>(target - col) < kWidth) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        if (i == target - col) v[i] -= g.factor * g.target;
    }
    store_streaming(out + col, v);
  });
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
      const HeldLogitsLaunch launch =
          choose_held_logits_launch(in.rows.count, in.cols, N, cluster_limit(ctx.device.index),
                                    multiprocessors(ctx.device.index));
      if (launch.threads == 0) return;
      cudaLaunchConfig_t config{};
      config.gridDim = dim3(static_cast<unsigned>(launch.blocks));
      config.blockDim = dim3(static_cast<unsigned>(launch.threads));
      config.stream = static_cast<cudaStream_t>(ctx.stream);
      cudaLaunchAttribute attribute{};
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim.x = static_cast<unsigned>(launch.cluster);
      attribute.val.clusterDim.y = 1;
      attribute.val.clusterDim.z = 1;
      config.attrs = &attribute;
      config.numAttrs = launch.cluster > 1 ? 1 : 0;
      const bool statistics = p.correct || in.label_smoothing > 0.0F;
      const auto kernel = statistics ? forward_held<T, N, true> : forward_held<T, N, false>;
      check(cudaLaunchKernelEx(&config, kernel, p, std::countr_zero(unsigned(launch.cluster))),
            "cross_entropy_forward");
      launched = true;
    }
  });
  return launched;
}

}  // namespace tigon::cuda
