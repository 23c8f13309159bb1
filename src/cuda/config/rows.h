#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tigon::cuda {

/// How a row-wise kernel covers [rows, cols]: blockDim = (threads_per_row, rows_per_block).
struct RowLaunch {
  int threads_per_row = 32;
  int rows_per_block = 4;
  std::int64_t blocks = 1;
  int shared_floats = 0;  // what RowReduction needs

  friend bool operator==(const RowLaunch&, const RowLaunch&) = default;
};

/// Vectors of a row that a thread can hold in registers.
inline constexpr int kHeldVectors = 4;

/// About four vectors of `width` elements per thread and row, at least 128 threads per block; grid
/// x holds 2^31 - 1 blocks, and the kernels loop over what is left. RowSweep needs at least as many
/// threads per row as a vector has elements, held rows only `least`.
constexpr RowLaunch choose_row_launch(std::int64_t rows, std::int64_t cols, int width,
                                      int least = 8) {
  const std::int64_t vectors = std::max<std::int64_t>(1, (cols + width - 1) / width);
  const auto wanted =
      std::bit_ceil(static_cast<std::uint64_t>((vectors + kHeldVectors - 1) / kHeldVectors));
  RowLaunch launch;
  launch.threads_per_row = static_cast<int>(std::clamp<std::uint64_t>(wanted, least, 1024));
  launch.rows_per_block = std::max(1, 128 / launch.threads_per_row);
  launch.blocks = std::clamp<std::int64_t>(
      (rows + launch.rows_per_block - 1) / launch.rows_per_block, 1, 0x7FFFFFFF);
  launch.shared_floats = 4 * launch.rows_per_block * std::max(1, launch.threads_per_row / 32);
  return launch;
}

/// For kernels that hold their row in registers, where fits_registers().
constexpr RowLaunch choose_held_launch(std::int64_t rows, std::int64_t cols, int width) {
  return choose_row_launch(rows, cols, width, 4);
}

constexpr bool fits_registers(std::int64_t cols, int width, int threads_per_row) {
  return cols <= std::int64_t{kHeldVectors} * threads_per_row * width;
}

/// For kernels whose blocks stay and walk over the rows, with sums over rows in registers and rows
/// of `streams` tensors on their way through shared memory, `stages` deep. Beside the rows, shared
/// memory holds one float per column and four per warp.
struct PersistentLaunch {
  int threads_per_row = 32;
  int rows_per_block = 4;
  std::int64_t blocks = 0;
  int stages = 0;  // 0: a row does not fit
  std::size_t shared_bytes = 0;

  friend bool operator==(const PersistentLaunch&, const PersistentLaunch&) = default;
};

inline constexpr int kPersistentThreads = 512;  // per multiprocessor: 128 registers each
inline constexpr int kMostStages = 3;

/// One block of kPersistentThreads per multiprocessor, so that partial sums are few; smaller ones,
/// as many as fit, where shared memory asks for it or rows are too few to fill these.
constexpr PersistentLaunch choose_persistent_launch(std::int64_t rows, std::int64_t cols, int width,
                                                    int streams, int multiprocessors,
                                                    std::size_t shared_memory) {
  const RowLaunch held = choose_held_launch(rows, cols, width);
  if (cols < 1 || held.threads_per_row > kPersistentThreads ||
      !fits_registers(cols, width, held.threads_per_row))
    return {};
  PersistentLaunch launch;
  launch.threads_per_row = held.threads_per_row;
  const int least = std::max(held.threads_per_row, 128);
  for (int threads = kPersistentThreads; threads >= least; threads /= 2) {
    launch.rows_per_block = threads / held.threads_per_row;
    if (rows < std::int64_t{multiprocessors} * launch.rows_per_block && threads > least) continue;
    const std::size_t warps = std::max(threads / 32, launch.rows_per_block);
    for (launch.stages = kMostStages; launch.stages >= 2; --launch.stages) {
      launch.shared_bytes = 4 * sizeof(float) * warps + sizeof(float) * cols +
                            std::size_t{16} * launch.stages * streams * kHeldVectors * threads;
      if (launch.shared_bytes > shared_memory) continue;
      constexpr std::size_t kReserved = 1024;  // by the driver, for every block
      const auto fit = static_cast<std::int64_t>((shared_memory + kReserved) /
                                                 (launch.shared_bytes + kReserved));
      const std::int64_t resident =
          std::int64_t{multiprocessors} * std::min<std::int64_t>(fit, kPersistentThreads / threads);
      launch.blocks = std::clamp<std::int64_t>(
          (rows + launch.rows_per_block - 1) / launch.rows_per_block, 1, resident);
      return launch;
    }
  }
  return {};
}

/// How a sum over rows is cut: tiles of 32 * width columns, and slices of rows whose partial sums
/// are added in order afterwards.
struct ColumnLaunch {
  std::int64_t tiles = 1;
  std::int64_t slices = 1;

  friend bool operator==(const ColumnLaunch&, const ColumnLaunch&) = default;
};

inline constexpr int kColumnThreads = 32;  // over columns
inline constexpr int kColumnRows = 8;      // over rows
inline constexpr int kSumRows = 16;        // over the slices

/// Enough blocks for four per multiprocessor, but at least 64 rows each.
constexpr ColumnLaunch choose_column_launch(std::int64_t rows, std::int64_t cols, int width,
                                            int multiprocessors) {
  const std::int64_t tile = kColumnThreads * width;
  ColumnLaunch launch;
  launch.tiles = std::max<std::int64_t>(1, (cols + tile - 1) / tile);
  const std::int64_t wanted = (4 * multiprocessors + launch.tiles - 1) / launch.tiles;
  launch.slices = std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, rows / 64));
  return launch;
}

}  // namespace tigon::cuda
