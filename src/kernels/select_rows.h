#pragma once

#include <cstdint>

#include "base/rows.h"

namespace tigon {

/// The rows whose label is not ignore_index, in order: how many, which, and their labels.
struct SelectRows {
  RowSpace rows;
  RowView labels;  // [rows, 1] int64 or int32
  std::int64_t ignore_index = 0;
  std::int64_t* selected = nullptr;        // [rows] on the device, the first *count are written
  std::int64_t* selected_label = nullptr;  // likewise
  std::int64_t* device_count = nullptr;    // [1] on the device: scratch
  /// In host memory: the stream is waited for. While a CUDA graph is being captured nothing can be
  /// waited for, and every row is selected.
  std::int64_t* count = nullptr;
};

}  // namespace tigon
