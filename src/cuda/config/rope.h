#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace tigon::cuda {

/// How rope covers [tokens, heads, slots]: a slot is one vector of pairs, or of copied features.
/// blockDim = (slots, heads, tokens); threads keep a slot's angles and walk over the heads.
struct RopeLaunch {
  int slots = 1;
  int heads = 1;
  int tokens = 1;
  std::int64_t blocks = 1;  // at most 2^31 - 1: the kernel loops over tokens

  friend bool operator==(const RopeLaunch&, const RopeLaunch&) = default;
};

/// About four heads per thread, so that angles are read once for them, in blocks of up to 256
/// threads; fewer heads per thread where that would leave a block with less than a warp.
constexpr RopeLaunch choose_rope_launch(std::int64_t tokens, std::int64_t heads,
                                        std::int64_t slots) {
  RopeLaunch launch;
  launch.slots = static_cast<int>(std::min<std::uint64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(1, slots))), 32));
  const std::int64_t most = 256 / launch.slots;
  const std::int64_t few = std::max<std::int64_t>((heads + 3) / 4, 32 / launch.slots);
  launch.heads = static_cast<int>(std::clamp<std::int64_t>(std::min(few, heads), 1, most));
  const std::int64_t room = std::clamp<std::int64_t>(most / launch.heads, 1, 64);
  launch.tokens = static_cast<int>(std::min<std::int64_t>(room, std::max<std::int64_t>(1, tokens)));
  launch.blocks =
      std::clamp<std::int64_t>((tokens + launch.tokens - 1) / launch.tokens, 1, 0x7FFFFFFF);
  return launch;
}

}  // namespace tigon::cuda
