#pragma once

#include <cstdint>

#include "base/rows.h"

namespace tigon {

struct SoftmaxForward {
  RowSpace rows;
  std::int64_t cols = 0;
  RowView x;  // [rows, cols]
  RowView y;  // [rows, cols]
};

struct SoftmaxBackward {
  RowSpace rows;
  std::int64_t cols = 0;
  RowView dy;  // [rows, cols]
  RowView y;   // [rows, cols]
  RowView dx;  // [rows, cols]
};

}  // namespace tigon
