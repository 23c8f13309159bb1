#pragma once

#include "cuda/config/rows.h"

namespace tigon::cuda {

/// Where rows cannot be held (below), they are read twice, and the second time should come from L2.
/// 1024 threads a row put one row on a multiprocessor, so 132 of 256 KiB (128k classes in bfloat16)
/// are 33 MiB of an H200's 50. Rows of at most 128 KiB leave room for two at once, which hides
/// one's reductions behind the other's loads.
constexpr RowLaunch choose_cross_entropy_launch(std::int64_t rows, std::int64_t cols, int width,
                                                std::int64_t element_bytes) {
  RowLaunch launch = choose_row_launch(rows, cols, width);
  if (launch.threads_per_row == 1024 && cols * element_bytes <= 128 * 1024) {
    launch.threads_per_row = 512;
    launch.shared_floats /= 2;
  }
  return launch;
}

/// How rows of a vocabulary are held on chip: `cluster` blocks of `threads` share one row, a thread
/// has up to kLogitVectors vectors of it in registers. Several such blocks fit a multiprocessor, so
/// that some exchange while others compute.
struct HeldLogitsLaunch {
  int threads = 0;  // whole warps; 0: the row does not fit, or is too short to be worth it
  int cluster = 1;

  friend bool operator==(const HeldLogitsLaunch&, const HeldLogitsLaunch&) = default;
};

inline constexpr int kLogitVectors = 16;
inline constexpr int kLogitThreads = 256;       // at most
inline constexpr int kLogitThreadsPerSm = 512;  // 128 registers each
inline constexpr int kMaxCluster = 8;           // what every device with clusters can schedule

/// Blocks of at most half of kLogitThreads where a cluster of them holds the row: more of them fit
/// a multiprocessor. Yet more blocks where multiprocessors would stand idle.
constexpr HeldLogitsLaunch choose_held_logits_launch(std::int64_t rows, std::int64_t cols,
                                                     int width, int max_cluster,
                                                     int multiprocessors) {
  constexpr std::int64_t kFewest = 256;  // vectors
  const std::int64_t vectors = cols / width;
  if (vectors < kFewest || rows < 1 || rows > 0x7FFFFFFF / kMaxCluster) return {};
  HeldLogitsLaunch launch;
  const auto holds = [&](int threads) {
    return vectors <= std::int64_t{launch.cluster} * threads * kLogitVectors;
  };
  while (!holds(kLogitThreads / 2) && launch.cluster < max_cluster) launch.cluster *= 2;
  if (!holds(kLogitThreads)) return {};
  while (2 * launch.cluster <= max_cluster && 2 * rows * launch.cluster <= multiprocessors &&
         vectors >= std::int64_t{launch.cluster} * kFewest)
    launch.cluster *= 2;
  const std::int64_t part = (vectors + launch.cluster - 1) / launch.cluster;
  constexpr std::int64_t kWarpPart = 32 * kLogitVectors;
  launch.threads = static_cast<int>(32 * ((part + kWarpPart - 1) / kWarpPart));
  return launch;
}

}  // namespace tigon::cuda
