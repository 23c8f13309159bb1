#pragma once

#include <cstdint>

#include "base/rows.h"

namespace tigon {

struct SkeletonForward {
  RowSpace rows;
  std::int64_t cols = 0;
  RowView x;       // [rows, cols]
  RowView y;       // [rows, cols] of x's type
  RowView weight;  // [cols]
};

struct SkeletonBackward {
  RowSpace rows;
  std::int64_t cols = 0;
  RowView dy;       // [rows, cols] of x's type
  RowView x;        // [rows, cols]
  RowView dx;       // [rows, cols] of x's type, or empty
  RowView weight;   // [cols]
  RowView dweight;  // [cols], contiguous, or empty
};

}  // namespace tigon
