#pragma once

#include <cstdint>

#include "base/rows.h"

namespace tigon {

struct LayerNormForward {
  RowSpace rows;
  std::int64_t cols = 0;
  RowView x;       // [rows, cols]
  RowView y;       // [rows, cols]
  RowView mean;    // [rows, 1] float32, or empty
  RowView rstd;    // [rows, 1] float32, or empty
  RowView weight;  // [cols], or empty
  RowView bias;    // [cols], or empty
  float eps = 0;
};

struct LayerNormBackward {
  RowSpace rows;
  std::int64_t cols = 0;
  RowView dy;       // [rows, cols]
  RowView x;        // [rows, cols]
  RowView dx;       // [rows, cols] of x's type, or empty
  RowView mean;     // [rows, 1] float32
  RowView rstd;     // [rows, 1] float32
  RowView weight;   // [cols], or empty
  RowView dweight;  // [cols], contiguous, or empty
  RowView dbias;    // [cols], contiguous, or empty
};

}  // namespace tigon
