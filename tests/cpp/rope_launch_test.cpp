#include <gtest/gtest.h>

#include "cuda/config/rope.h"

namespace tigon::cuda {
namespace {

TEST(RopeLaunch, CoversEverythingAndIsLaunchable) {
  for (const std::int64_t tokens : {1, 7, 65537, 1 << 20}) {
    for (const std::int64_t heads : {1, 2, 5, 40, 96, 1000}) {
      for (const std::int64_t k_heads : {0, 1, 8, 40}) {
        for (const std::int64_t slots : {1, 3, 8, 16, 64, 513}) {
          const RopeLaunch launch = choose_rope_launch(1, tokens, heads, k_heads, slots);
          EXPECT_GE(launch.slots, 1);
          EXPECT_GE(launch.q_rows, 1);
          EXPECT_LE(launch.q_rows, heads);
          EXPECT_EQ(launch.k_rows > 0, k_heads > 0);
          EXPECT_LE(launch.k_rows, k_heads);
          EXPECT_GE(launch.tokens, 1);
          EXPECT_LE(launch.tokens, 64);  // blockDim.z
          EXPECT_LE(launch.slots * (launch.q_rows + launch.k_rows) * launch.tokens, kRopeThreads);
          EXPECT_GE(launch.blocks * launch.tokens, tokens);
          EXPECT_LT((launch.blocks - 1) * launch.tokens, tokens);
        }
      }
    }
  }
}

TEST(RopeLaunch, EveryBatchItemHasItsBlocks) {
  for (const std::int64_t batch : {1, 65535, 65536, 1 << 20}) {
    const RopeLaunch launch = choose_rope_launch(batch, 1, 8, 8, 8);
    EXPECT_LE(std::max(launch.batches, launch.batch_groups), 65535);
    EXPECT_GE(std::int64_t{launch.batches} * launch.batch_groups, batch);
  }
}

TEST(RopeLaunch, Choices) {
  // 32 + 8 heads of 128 in bfloat16: four heads per thread, three tokens per block.
  EXPECT_EQ(choose_rope_launch(8, 2048, 32, 8, 8), (RopeLaunch{.slots = 8,
                                                               .q_rows = 8,
                                                               .k_rows = 2,
                                                               .tokens = 3,
                                                               .blocks = 683,
                                                               .batches = 8,
                                                               .batch_groups = 1}));
  // One head of one token.
  EXPECT_EQ(choose_rope_launch(1, 1, 1, 0, 8), (RopeLaunch{.slots = 8}));
}

}  // namespace
}  // namespace tigon::cuda
