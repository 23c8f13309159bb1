#include <gtest/gtest.h>

#include "cuda/config/rope.h"

namespace tigon::cuda {
namespace {

TEST(RopeLaunch, IsAlwaysLaunchable) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  for (const std::int64_t tokens : {std::int64_t{1}, std::int64_t{7}, std::int64_t{65537}, kMany}) {
    for (const std::int64_t heads : {1, 2, 5, 40, 96, 1000}) {
      for (const std::int64_t slots : {1, 3, 8, 16, 64, 513}) {
        for (const std::int64_t k_heads : {0, 1, 8, 40}) {
          const RopeLaunch both = choose_rope_launch(tokens, heads, k_heads, slots);
          EXPECT_EQ(both.k_rows > 0, k_heads > 0);
          EXPECT_LE(both.k_rows, k_heads);
          EXPECT_LE(both.slots * (both.q_rows + both.k_rows) * both.tokens, kRopeThreads);
        }
        const RopeLaunch launch = choose_rope_launch(tokens, heads, 0, slots);
        EXPECT_GE(std::min({launch.slots, launch.q_rows, launch.tokens}), 1);
        EXPECT_LE(launch.q_rows, heads);
        EXPECT_LE(launch.tokens, 64);  // blockDim.z
        EXPECT_GE(launch.blocks, 1);
        EXPECT_LE(launch.blocks, 0x7FFFFFFF);
      }
    }
  }
}

TEST(RopeLaunch, OneTurnCoversTheTokensWhereTheGridCan) {
  for (const std::int64_t tokens : {1, 2, 15, 16, 17, 1000003}) {
    const RopeLaunch launch = choose_rope_launch(tokens, 12, 4, 4);
    EXPECT_GE(launch.blocks * launch.tokens, tokens);
    EXPECT_LT((launch.blocks - 1) * launch.tokens, tokens);
  }
}

TEST(RopeLaunch, Choices) {
  // 32 + 8 heads of 128 in bfloat16: four heads per thread, three tokens per block.
  EXPECT_EQ(choose_rope_launch(16384, 32, 8, 8),
            (RopeLaunch{.slots = 8, .q_rows = 8, .k_rows = 2, .tokens = 3, .blocks = 5462}));
  // One token of one head.
  EXPECT_EQ(choose_rope_launch(1, 1, 0, 8),
            (RopeLaunch{.slots = 8, .q_rows = 1, .k_rows = 0, .tokens = 1, .blocks = 1}));
}

}  // namespace
}  // namespace tigon::cuda
