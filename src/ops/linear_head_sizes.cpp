#include "ops/linear_head_sizes.h"

#include <algorithm>

namespace tigon {
namespace {

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// MiB of logits in a chunk. Each chunk reads the weight, and reads and writes partial sums of
// dweight, so few large chunks are fastest: half a GiB on a GPU, 96 MiB on a CPU (49152 classes,
// H = 576, bf16: 256 rows 1.08 s, 1024 rows 0.9 s). A frozen head takes half of that: its products
// run at full speed from a thousand rows on, and it is used where memory is short, in LoRA, at the
// very moment when all activations are there. In low memory, what 8192 rows (H = 4096, 128256
// classes, bf16, dx counted in) need on a GPU: 129 MiB with a frozen head, 258 beside dweight with
// a trained one.
constexpr std::int64_t logits_mib(const HeadSizes& s) {
  const bool cuda = s.device == DeviceType::cuda;
  if (s.low_memory && s.trained && !s.has_sums()) return cuda ? 190 : 48;
  if (s.low_memory) return cuda ? 64 : 24;  // of a tile too
  if (!cuda) return 96;
  return s.trained || s.loss_only ? 512 : 256;
}

}  // namespace

std::int64_t choose_chunk_rows(const HeadSizes& s) {
  const bool cuda = s.device == DeviceType::cuda;
  const std::int64_t unit = cuda && !s.low_memory ? 256 : 64;
  const std::int64_t least = s.low_memory ? unit : 2 * unit;
  const std::int64_t fitting = (logits_mib(s) << 20) / (s.vocab * s.element_bytes) / unit * unit;
  std::int64_t chosen = std::clamp<std::int64_t>(fitting, least, cuda ? 4096 : 1024);
  if (s.has_sums() && !s.low_memory) {
    // All logits take no more than a float32 sum would: no sums, and each product is one.
    if (s.rows * s.element_bytes <= s.hidden * 4) chosen = s.rows;
    // Else as many rows as dweight's memory holds, where their logits lie.
    chosen = std::max(chosen, s.hidden);
  }
  return std::clamp<std::int64_t>(s.rows, 1, std::max<std::int64_t>(chosen, 1));
}

std::int64_t choose_tile_cols(const HeadSizes& s, std::int64_t chunk_rows, bool given) {
  // A tile reads and writes a float32 sum of dx, so that narrow ones cost more than their products.
  const std::int64_t least = given ? 1 : s.device == DeviceType::cuda ? 2048 : 512;
  const std::int64_t fitting = chunk_rows * s.vocab / std::max<std::int64_t>(s.rows, 1);
  const std::int64_t cols = std::clamp(fitting, std::min(least, s.vocab), s.vocab);
  const std::int64_t unit = cols >= 64 ? 64 : 8;  // rows of a tile start on 16-byte boundaries
  return divide_up(divide_up(s.vocab, divide_up(s.vocab, cols)), unit) * unit;
}

}  // namespace tigon
