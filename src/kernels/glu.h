#pragma once

#include <cstdint>

#include "base/rows.h"

namespace tigon {

/// y = act(gate) * up for one activation; swiglu and geglu name it. All views have one type.
/// Rows are merged into columns where they can be, so cols may be the whole tensor.
struct GluForward {
  RowSpace rows;
  std::int64_t cols = 0;
  RowView gate;  // [rows, cols]
  RowView up;    // [rows, cols]
  RowView y;     // [rows, cols]
};

struct GluBackward {
  RowSpace rows;
  std::int64_t cols = 0;
  RowView dy;     // [rows, cols]
  RowView gate;   // [rows, cols]
  RowView up;     // [rows, cols]
  RowView dgate;  // [rows, cols], or empty
  RowView dup;    // [rows, cols], or empty
};

}  // namespace tigon
