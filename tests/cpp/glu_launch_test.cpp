#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/config/glu.h"

namespace tigon::cuda {
namespace {

TEST(GluLaunch, IsAlwaysLaunchable) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{3}, std::int64_t{65537}, kMany}) {
    for (const std::int64_t cols : {1, 7, 128, 4096, 14336, 1 << 30}) {
      for (const int width : {1, 4, 8}) {
        const GluLaunch launch = choose_glu_launch(rows, cols, width);
        EXPECT_EQ(launch.threads_per_row * launch.rows_per_block, 256);
        EXPECT_GE(launch.tiles, 1);
        EXPECT_LE(launch.tiles, 0x7FFFFFFF);
        EXPECT_GE(launch.groups, 1);
        EXPECT_LE(launch.groups, 65535);
      }
    }
  }
}

TEST(GluLaunch, TilesCoverTheColumnsAndBlocksTheRows) {
  for (const std::int64_t rows : {1, 2, 31, 33, 100003}) {
    for (const std::int64_t cols : {8, 16, 72, 4096, 14336}) {
      const GluLaunch launch = choose_glu_launch(rows, cols, 8);
      const std::int64_t tile = launch.threads_per_row * kGluVectors * 8;
      EXPECT_GE(launch.tiles * tile, cols);
      EXPECT_LT((launch.tiles - 1) * tile, cols);
      EXPECT_GE(launch.groups * launch.rows_per_block, std::min<std::int64_t>(rows, 65535));
      EXPECT_LT((launch.groups - 1) * launch.rows_per_block, rows);
    }
  }
}

TEST(GluLaunch, Choices) {
  // Merged into one row: every block a tile of it.
  EXPECT_EQ(choose_glu_launch(1, std::int64_t{16384} * 14336, 8),
            (GluLaunch{.threads_per_row = 256, .rows_per_block = 1, .tiles = 57344, .groups = 1}));
  // One packed token spreads over several multiprocessors.
  EXPECT_EQ(choose_glu_launch(1, 14336, 8),
            (GluLaunch{.threads_per_row = 256, .rows_per_block = 1, .tiles = 4, .groups = 1}));
  // Many packed tokens: seven tiles of 256 vectors, none of them half empty.
  EXPECT_EQ(choose_glu_launch(16384, 14336, 8),
            (GluLaunch{.threads_per_row = 128, .rows_per_block = 2, .tiles = 7, .groups = 8192}));
  EXPECT_EQ(choose_glu_launch(65536, 128, 8),
            (GluLaunch{.threads_per_row = 8, .rows_per_block = 32, .tiles = 1, .groups = 2048}));
}

}  // namespace
}  // namespace tigon::cuda
