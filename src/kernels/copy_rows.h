#pragma once

#include <cstdint>

#include "base/rows.h"

namespace tigon {

/// Rows from one place to another with a change of type, and on the way a gather (from_index), a
/// scatter (to_index), a broadcast (stride 0), a fill (no `from`), or a scale.
struct CopyRows {
  std::int64_t count = 0;
  std::int64_t cols = 0;
  RowSpace from_rows;
  RowView from;                              // [.., cols] floating, or empty: `fill` everywhere
  const std::int64_t* from_index = nullptr;  // [count] on the device, or null: 0, 1, 2, ...
  RowSpace to_rows;
  RowView to;                              // [.., cols] floating; may be `from` itself
  const std::int64_t* to_index = nullptr;  // like from_index
  /// [1] on the device, or null. What is 0 stays 0 even where the scale is Inf or NaN; where it is
  /// 1 and `to` is `from`, nothing is touched.
  const float* scale = nullptr;
  float fill = 0.0F;
};

}  // namespace tigon
