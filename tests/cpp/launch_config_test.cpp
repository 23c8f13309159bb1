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
        EXPECT_EQ(launch.threads_per_row & (launch.threads_per_row - 1), 0);  // RowReduction
        EXPECT_GE(threads, 128);
        EXPECT_LE(threads, 1024);
        EXPECT_EQ(threads % 32, 0);  // whole warps: RowReduction's mask is full
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
  EXPECT_EQ(
      choose_row_launch(16384, 4096, 8),
      (RowLaunch{
          .threads_per_row = 128, .rows_per_block = 1, .blocks = 16384, .shared_floats = 16}));
  EXPECT_EQ(choose_row_launch(524288, 128, 8),
            (RowLaunch{
                .threads_per_row = 8, .rows_per_block = 16, .blocks = 32768, .shared_floats = 64}));
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

constexpr std::size_t kHopperShared = 227 * 1024;

TEST(PersistentLaunch, BlocksStayAndNoneIsIdle) {
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{100}, std::int64_t{16384}, kMany}) {
    for (const std::int64_t cols : {8, 128, 4096, 8192, 16384}) {
      for (const std::size_t shared : {std::size_t{64} * 1024, std::size_t{99} * 1024,
                                       std::size_t{163} * 1024, kHopperShared}) {
        if (cols <= 4096) {
          EXPECT_GE(choose_persistent_launch(rows, cols, 8, 2, 132, shared).stages, 2)
              << cols << " in " << shared;
        }
        const int streams = rows == 100 ? 3 : 2;
        const PersistentLaunch launch =
            choose_persistent_launch(rows, cols, 8, streams, 132, shared);
        if (launch.stages == 0) continue;
        const int threads = launch.threads_per_row * launch.rows_per_block;
        EXPECT_LE(launch.blocks * threads, 132 * kPersistentThreads);
        EXPECT_LT((launch.blocks - 1) * launch.rows_per_block, rows);
        EXPECT_LE(launch.shared_bytes, shared);
        EXPECT_TRUE(fits_registers(cols, 8, launch.threads_per_row));
        EXPECT_LE(launch.rows_per_block, launch.threads_per_row > 32 ? 15 : 512);  // barriers
      }
    }
  }
}

TEST(PersistentLaunch, Choices) {
  const PersistentLaunch launch = choose_persistent_launch(16384, 4096, 8, 2, 132, kHopperShared);
  EXPECT_EQ(launch.threads_per_row, 128);
  EXPECT_EQ(launch.rows_per_block, 4);
  EXPECT_EQ(launch.blocks, 132);
  EXPECT_EQ(launch.stages, 3);
  EXPECT_EQ(choose_persistent_launch(16384, 16384, 8, 2, 132, kHopperShared).stages, 2);
  EXPECT_EQ(choose_persistent_launch(16384, 32768, 8, 2, 132, kHopperShared).stages, 0);
  // Three streams take the place of a stage.
  EXPECT_EQ(choose_persistent_launch(16384, 4096, 8, 3, 132, kHopperShared).stages, 2);
  // Few rows on more blocks, of a quarter of the threads.
  const PersistentLaunch few = choose_persistent_launch(64, 4096, 8, 2, 132, kHopperShared);
  EXPECT_EQ(few.rows_per_block, 1);
  EXPECT_EQ(few.blocks, 64);
  // Half the threads where shared memory is small.
  const PersistentLaunch small = choose_persistent_launch(16384, 4096, 8, 2, 100, 99 * 1024);
  EXPECT_EQ(small.threads_per_row * small.rows_per_block, 256);
  EXPECT_EQ(small.stages, 2);
  EXPECT_EQ(small.blocks, 100);
  EXPECT_EQ(choose_persistent_launch(16384, 4096, 8, 2, 132, 32 * 1024).stages, 0);
}

TEST(CrossEntropyLaunch, LongRowsTakeAMultiprocessorAndShortOnesShareIt) {
  EXPECT_EQ(choose_cross_entropy_launch(4096, 128256, 8, 2), choose_row_launch(4096, 128256, 8));
  EXPECT_EQ(choose_cross_entropy_launch(65537, 8, 4, 4), choose_row_launch(65537, 8, 4));
  EXPECT_EQ(choose_cross_entropy_launch(4096, 49152, 8, 2),
            (RowLaunch{
                .threads_per_row = 512, .rows_per_block = 1, .blocks = 4096, .shared_floats = 64}));
}

TEST(HeldLogitsLaunch, HoldsTheRowOrSaysThatItDoesNot) {
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{7}, std::int64_t{8192}, kMany}) {
    for (const std::int64_t cols : {8, 2047, 2048, 32000, 50257, 128256, 151936, 262144, 1 << 22}) {
      for (const int width : {4, 8}) {
        for (const int max_cluster : {1, 8}) {
          const HeldLogitsLaunch launch =
              choose_held_logits_launch(rows, cols, width, max_cluster, 132);
          if (launch.threads == 0) continue;
          EXPECT_EQ(launch.threads % 32, 0);
          EXPECT_LE(launch.threads, kLogitThreads);
          EXPECT_LE(launch.cluster, max_cluster);
          EXPECT_EQ(launch.cluster & (launch.cluster - 1), 0);  // ranks are bits of the block
          EXPECT_LE(rows * launch.cluster, 0x7FFFFFFF);
          // Every block holds its part, all but the single elements at the edges.
          const std::int64_t part = (cols / width + launch.cluster - 1) / launch.cluster;
          EXPECT_GE(launch.threads * kLogitVectors, part);
        }
      }
    }
  }
}

TEST(HeldLogitsLaunch, Choices) {
  EXPECT_EQ(choose_held_logits_launch(8192, 128256, 8, 8, 132),
            (HeldLogitsLaunch{.threads = 128, .cluster = 8}));
  EXPECT_EQ(choose_held_logits_launch(4096, 262144, 8, 8, 132),
            (HeldLogitsLaunch{.threads = 256, .cluster = 8}));
  EXPECT_EQ(choose_held_logits_launch(8192, 32000, 8, 8, 132),
            (HeldLogitsLaunch{.threads = 128, .cluster = 2}));
  // No clusters, rows longer than a block; rows not worth a block.
  EXPECT_EQ(choose_held_logits_launch(8192, 128256, 8, 1, 108).threads, 0);
  EXPECT_EQ(choose_held_logits_launch(8192, 1024, 8, 8, 132).threads, 0);
  // One row spreads over a cluster.
  EXPECT_EQ(choose_held_logits_launch(1, 32000, 8, 8, 132).cluster, 8);
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
