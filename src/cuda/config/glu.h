#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace tigon::cuda {

/// Vectors of each stream that a thread has in flight.
inline constexpr int kGluVectors = 2;

/// How an element-wise kernel covers [rows, cols]: blocks of rows_per_block rows by a tile of
/// threads_per_row * kGluVectors vectors, on a grid of tiles by row groups.
struct GluLaunch {
  int threads_per_row = 256;
  int rows_per_block = 1;
  std::int64_t tiles = 1;   // over columns: more than fit grid x would not fit memory
  std::int64_t groups = 1;  // of rows, at most 65535: the kernels loop

  friend bool operator==(const GluLaunch&, const GluLaunch&) = default;
};

/// 256 threads, along one row where it is long enough, else over several rows; over more of them
/// where that leaves fewer threads of a row's last tile without work.
constexpr GluLaunch choose_glu_launch(std::int64_t rows, std::int64_t cols, int width) {
  const std::int64_t vectors = std::max<std::int64_t>(1, (cols + width - 1) / width);
  const std::int64_t per_thread = (vectors + kGluVectors - 1) / kGluVectors;
  GluLaunch launch;
  launch.threads_per_row = static_cast<int>(
      std::clamp<std::uint64_t>(std::bit_ceil(static_cast<std::uint64_t>(per_thread)), 8, 256));
  const auto fit = [&] {
    const std::int64_t tile = launch.threads_per_row * kGluVectors;
    launch.tiles = (vectors + tile - 1) / tile;
    return 16 * (launch.tiles * tile - vectors) <= vectors;
  };
  while (!fit() && launch.threads_per_row > 64 && rows > 256 / launch.threads_per_row)
    launch.threads_per_row /= 2;
  launch.rows_per_block = 256 / launch.threads_per_row;
  const std::int64_t groups = (rows + launch.rows_per_block - 1) / launch.rows_per_block;
  launch.groups = std::clamp<std::int64_t>(groups, 1, 65535);
  return launch;
}

}  // namespace tigon::cuda
