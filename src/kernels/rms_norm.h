#pragma once

#include <cstdint>

#include "base/rows.h"

namespace tigon {

struct RmsNormForward {
  RowSpace rows;
  std::int64_t cols = 0;
  RowView x;         // [rows, cols]
  RowView residual;  // [rows, cols] of x's type, or empty: nothing to add
  RowView sum;       // [rows, cols] of x's type, written when residual is there
  RowView y;         // [rows, cols]
  RowView rstd;      // [rows, 1] float32, or empty
  RowView weight;    // [cols], or empty
  float eps = 0;
  float weight_offset = 0;
  bool round_before_weight = false;
};

struct RmsNormBackward {
  RowSpace rows;
  std::int64_t cols = 0;
  RowView dy;       // [rows, cols]
  RowView x;        // [rows, cols]
  RowView dsum;     // [rows, cols] of x's type, added to dx, or empty
  RowView dx;       // [rows, cols] of x's type, or empty
  RowView rstd;     // [rows, 1] float32
  RowView weight;   // [cols], or empty
  RowView dweight;  // [cols], contiguous, or empty
  float weight_offset = 0;
  bool round_before_weight = false;
};

}  // namespace tigon
