#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace tigon::cuda {

inline constexpr int kRopeThreads = 256;  // of a block, at most
inline constexpr int kRopeHeads = 4;      // that a thread has on their way at a time

/// How rope covers [batch, tokens, heads, slots]: a slot is one vector of pairs, or of copied
/// features. blockDim = (slots, q_rows + k_rows, tokens), gridDim = (blocks, batches,
/// batch_groups); threads read a slot's angles for every kRopeHeads heads of q or of k that they
/// have.
struct RopeLaunch {
  int slots = 1;  // at most 32: the kernel loops over the others
  int q_rows = 1;
  int k_rows = 0;
  int tokens = 1;
  std::int64_t blocks = 1;  // of tokens; more than 2^31 - 1 fit no memory
  int batches = 1;
  int batch_groups = 1;

  friend bool operator==(const RopeLaunch&, const RopeLaunch&) = default;
};

/// kRopeHeads heads per thread, for which angles are read once: fewer where that would leave
/// a token with less than a warp, more where a block would not hold it.
constexpr RopeLaunch choose_rope_launch(std::int64_t batch, std::int64_t tokens,
                                        std::int64_t q_heads, std::int64_t k_heads,
                                        std::int64_t slots) {
  RopeLaunch launch;
  launch.slots = static_cast<int>(std::min<std::uint64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(1, slots))), 32));
  const auto threads = [&](std::int64_t per_thread) {
    launch.q_rows = static_cast<int>((q_heads + per_thread - 1) / per_thread);
    launch.k_rows = static_cast<int>((k_heads + per_thread - 1) / per_thread);
    return std::int64_t{launch.slots} * (launch.q_rows + launch.k_rows);
  };
  std::int64_t per_thread = kRopeHeads;
  while (per_thread > 1 && threads(per_thread) < 32) per_thread /= 2;
  while (threads(per_thread) > kRopeThreads) per_thread *= 2;
  const std::int64_t room = std::min<std::int64_t>(kRopeThreads / threads(per_thread), 64);
  launch.tokens = static_cast<int>(std::clamp<std::int64_t>(tokens, 1, room));
  launch.blocks = std::max<std::int64_t>(1, (tokens + launch.tokens - 1) / launch.tokens);
  launch.batches = static_cast<int>(std::clamp<std::int64_t>(batch, 1, 65535));
  launch.batch_groups = static_cast<int>((batch + launch.batches - 1) / launch.batches);
  return launch;
}

}  // namespace tigon::cuda
