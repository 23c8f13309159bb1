#pragma once

#include <cstdint>

#include "base/rows.h"

namespace tigon {

/// From a logit z as stored to x as the loss sees it: x = outer * z, or outer * tanh(inner * z)
/// where inner is not 0. A scale s before a soft cap c is {c, s / c}; a temperature T after either
/// divides outer by T.
struct LogitMap {
  float outer = 1.0F;
  float inner = 0.0F;

  /// dz = slope() * dx, and where inner is not 0 times 1 - (x / outer)^2.
  TIGON_HOST_DEVICE float slope() const { return inner == 0.0F ? outer : outer * inner; }
};

/// What every direction reads. Rows and columns as the public header has them.
struct CrossEntropyRows {
  RowSpace rows;
  std::int64_t cols = 0;
  RowView logits;  // [rows, cols]
  RowView labels;  // [rows, 1] int64 or int32
  RowView weight;  // [cols], or empty: ones
  LogitMap map;
  std::int64_t ignore_index = 0;
  float label_smoothing = 0;
  float z_loss = 0;
};

/// Losses and, where dlogits is there, their gradient with respect to the logits, in one visit of
/// each row. An ignored row gives zeros everywhere and its logits are not read; a label out of
/// range gives NaN.
struct CrossEntropyForward {
  CrossEntropyRows in;
  RowView row_weight;              // [rows, 1] float32, times loss, z_loss and dlogits; or empty
  const float* divisor = nullptr;  // [1] on the device, divides dlogits alone; or null
  RowView loss;                    // [rows, 1] float32
  RowView z_loss;                  // [rows, 1] float32, or empty
  RowView correct;                 // [rows, 1] float32, 1 or 0, or empty
  RowView lse;                     // [rows, 1] float32, or empty
  RowView dlogits;                 // [rows, cols] of logits' type, or empty; may be the logits
};

/// Some columns of all of in.cols: where one is given, logits and dlogits are [rows, cols], the
/// columns from `first` on.
struct ColumnTile {
  std::int64_t first = 0;
  std::int64_t cols = 0;
};

/// The same gradient later, from lse.
struct CrossEntropyBackward {
  CrossEntropyRows in;
  ColumnTile tile;
  RowView dloss;                   // [rows, 1] float32, or empty: ones
  RowView lse;                     // [rows, 1] float32
  const float* divisor = nullptr;  // [1] on the device, or null
  RowView dlogits;                 // [rows, cols] of logits' type; may be the logits
};

/// What is known of each row when some of its columns have been visited: [rows, 1] float32 each.
struct CrossEntropyStatistics {
  RowView largest;   // x
  RowView sum;       // of exp(x - largest)
  RowView at_label;  // x[label], NaN before it is visited
  RowView before;    // largest x of a column before the label; or empty: accuracy is not wanted
  RowView dot;       // sum of w * x; or empty: there is no label smoothing
};

/// Adds a tile to the statistics; one whose first column is 0 starts them. Nothing is written for
/// ignored rows.
struct CrossEntropyTile {
  CrossEntropyRows in;
  ColumnTile tile;
  CrossEntropyStatistics statistics;
};

/// The losses of CrossEntropyForward from the statistics of all columns.
struct CrossEntropyFinish {
  CrossEntropyForward results;  // whose logits, divisor and dlogits do not matter
  CrossEntropyStatistics statistics;
};

/// Sums over rows in a fixed order, and the only division by their number.
struct CrossEntropyReduce {
  RowSpace rows;
  std::int64_t cols = 0;
  RowView labels;  // [rows, 1]
  RowView weight;  // [cols], or empty
  std::int64_t ignore_index = 0;
  bool mean = false;
  RowView loss;                          // [rows, 1] float32, or empty; likewise:
  RowView z_loss;                        //
  RowView correct;                       //
  const float* given_divisor = nullptr;  // [1]: divides instead of the sum of weights, or null
  // Outputs, [1] float32 each, or null.
  float* total_loss = nullptr;      // sum of loss, divided when mean
  float* total_z_loss = nullptr;    // likewise
  float* token_accuracy = nullptr;  // sum of correct / number of rows that count
  float* divisor = nullptr;         // sum of weight[label] over the rows that count
};

struct CrossEntropyScale {
  RowSpace rows;
  std::int64_t cols = 0;
  RowView dlogits;               // [rows, cols]
  RowView labels;                // [rows, 1]
  RowView out;                   // [rows, cols] of dlogits' type; may be dlogits
  const float* dloss = nullptr;  // [1] on the device
  std::int64_t ignore_index = 0;
};

}  // namespace tigon
