#pragma once

#include <cstdint>

#include "base/rows.h"

namespace tigon {

/// q or k: strides of both views are over [batch, token, head], columns are features.
struct RopeHeads {
  std::int64_t count = 0;  // 0: absent
  RowView x;
  RowView y;
};

/// Both directions: backward is the transposed rotation.
struct Rope {
  std::int64_t batch = 0;
  std::int64_t tokens = 0;  // per batch item
  std::int64_t head_dim = 0;
  std::int64_t pairs = 0;  // rotary_dim / 2
  RopeHeads q;
  RopeHeads k;           // of q's type
  RowView cos;           // strides over [batch, position], columns are features or pairs
  RowView sin;           // cos's type and layout, its own strides
  RowView position_ids;  // int32 or int64, strides over [batch, token]; empty: the token's index
  std::int64_t positions = 0;  // rows of the tables
  bool per_pair = false;       // cos and sin have one value per pair, else one per feature
  bool interleaved = false;
  bool transposed = false;
};

}  // namespace tigon
