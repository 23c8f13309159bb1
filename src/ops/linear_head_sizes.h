#pragma once

#include <cstdint>

#include "tigon/tensor.h"

namespace tigon {

/// What the sizes of a linear head's pieces are chosen from.
struct HeadSizes {
  std::int64_t rows = 0;
  std::int64_t hidden = 0;
  std::int64_t vocab = 0;
  std::int64_t element_bytes = 0;
  DeviceType device = DeviceType::cpu;
  bool trained = false;         // dweight is wanted
  bool sum_in_float32 = false;  // partial sums of dweight
  bool low_memory = false;
  bool loss_only = false;  // no gradient is wanted

  /// Whether partial sums of dweight would need memory of their own.
  bool has_sums() const { return trained && sum_in_float32 && element_bytes < 4; }
};

/// How many rows of logits are held at a time.
std::int64_t choose_chunk_rows(const HeadSizes& sizes);

/// How many columns of logits are held at a time, of all rows: as many logits as `chunk_rows` rows
/// have, but never narrow tiles unless that number was given.
std::int64_t choose_tile_cols(const HeadSizes& sizes, std::int64_t chunk_rows, bool given);

}  // namespace tigon
