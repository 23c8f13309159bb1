#include <gtest/gtest.h>

#include "cuda/config/cross_entropy.h"
#include "cuda/config/rows.h"

// Launch choices are pure functions: what every choice must hold, and the ones that were meant.
namespace tigon::cuda {
namespace {

constexpr std::int64_t kMany = std::int64_t{1} << 40;

TEST(RowLaunch, IsAlwaysLaunchable) {
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{3}, std::int64_t{65537}, kMany}) {
    for (const std::int64_t cols : {1, 7, 128, 4096, 131072, 1 << 30}) {
      for (const int width : {1, 4, 8}) {
        const RowLaunch launch = choose_row_launch(rows, cols, width);
        const int threads = launch.threads_per_row * launch.rows_per_block;
        EXPECT_EQ(launch.threads_per_row & (launch.threads_per_row - 1), 0);  // reduce_row
        EXPECT_GE(threads, 128);
        EXPECT_LE(threads, 1024);
        EXPECT_EQ(threads % 32, 0);  // whole warps: reduce_row's mask is full
        EXPECT_GE(launch.blocks, 1);
        EXPECT_LE(launch.blocks, 0x7FFFFFFF);
        EXPECT_GE(launch.shared_floats,
                  launch.rows_per_block * std::max(1, launch.threads_per_row / 32));
      }
    }
  }
}

TEST(RowLaunch, OneTurnCoversTheRowsWhereTheGridCan) {
  for (const std::int64_t rows : {1, 2, 15, 16, 17, 1000003}) {
    const RowLaunch launch = choose_row_launch(rows, 128, 8);
    EXPECT_GE(launch.blocks * launch.rows_per_block, rows);
    EXPECT_LT((launch.blocks - 1) * launch.rows_per_block, rows);
  }
}

TEST(RowLaunch, Choices) {
  EXPECT_EQ(choose_row_launch(16384, 4096, 8),
            (RowLaunch{
                .threads_per_row = 128, .rows_per_block = 1, .blocks = 16384, .shared_floats = 4}));
  EXPECT_EQ(choose_row_launch(524288, 128, 8),
            (RowLaunch{
                .threads_per_row = 8, .rows_per_block = 16, .blocks = 32768, .shared_floats = 16}));
}

TEST(HeldLaunch, RowsFitUpToTheLargestBlock) {
  for (const int width : {4, 8}) {
    const std::int64_t largest = std::int64_t{1024} * kHeldVectors * width;
    for (const std::int64_t cols :
         {std::int64_t{width}, std::int64_t{128}, std::int64_t{4096}, largest}) {
      const RowLaunch launch = choose_held_launch(100, cols, width);
      EXPECT_TRUE(fits_registers(cols, width, launch.threads_per_row)) << cols;
      EXPECT_EQ(launch.threads_per_row * launch.rows_per_block % 32, 0);
    }
    EXPECT_FALSE(fits_registers(largest + width, width, 1024));
  }
  EXPECT_EQ(choose_held_launch(524288, 128, 8).threads_per_row, 4);
}

TEST(PersistentLaunch, BlocksStayAndNoneIsIdle) {
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{100}, std::int64_t{16384}, kMany}) {
    for (const std::int64_t cols : {128, 4096, 16384}) {
      const RowLaunch launch = choose_persistent_launch(rows, cols, 8, 132);
      const int threads = launch.threads_per_row * launch.rows_per_block;
      EXPECT_LE(launch.blocks * threads, 132 * std::max(threads, kPersistentThreads));
      EXPECT_LT((launch.blocks - 1) * launch.rows_per_block, rows);
    }
  }
  EXPECT_EQ(choose_persistent_launch(16384, 4096, 8, 132).blocks, 4 * 132);
}

TEST(CrossEntropyLaunch, LongRowsTakeAMultiprocessorAndShortOnesShareIt) {
  EXPECT_EQ(choose_cross_entropy_launch(4096, 128256, 8, 2), choose_row_launch(4096, 128256, 8));
  EXPECT_EQ(choose_cross_entropy_launch(65537, 8, 4, 4), choose_row_launch(65537, 8, 4));
  EXPECT_EQ(choose_cross_entropy_launch(4096, 49152, 8, 2),
            (RowLaunch{
                .threads_per_row = 512, .rows_per_block = 1, .blocks = 4096, .shared_floats = 16}));
}

TEST(ColumnLaunch, TilesCoverTheColumnsAndSlicesAreNotEmpty) {
  for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{1}, std::int64_t{100000}, kMany}) {
    for (const std::int64_t cols : {1, 31, 256, 4096, 131072}) {
      for (const int width : {1, 4, 8}) {
        const ColumnLaunch launch = choose_column_launch(rows, cols, width, 132);
        EXPECT_GE(launch.tiles * kColumnThreads * width, cols);
        EXPECT_GE(launch.slices, 1);
        EXPECT_LE(launch.slices, std::max<std::int64_t>(1, rows / 64));
        // The workspace is reserved before the width is known, for the widest.
        EXPECT_LE(launch.slices, choose_column_launch(rows, cols, 8, 132).slices);
      }
    }
  }
}

}  // namespace
}  // namespace tigon::cuda
