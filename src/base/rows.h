#pragma once

#include <cstdint>
#include <initializer_list>

#include "tigon/tensor.h"

#if defined(__CUDACC__)
#define TIGON_HOST_DEVICE __host__ __device__
#else
#define TIGON_HOST_DEVICE
#endif

namespace tigon {

inline constexpr int kMaxRowAxes = kMaxRank - 1;

/// The leading axes of tensors of one shape, as rows 0..count-1 in an order that all of them can
/// walk cheaply: axes are sorted by the first tensor's strides and merged where every tensor
/// allows it. One contiguous tensor, or several, always fold to one axis.
struct RowSpace {
  std::int64_t count = 1;
  std::int64_t sizes[kMaxRowAxes] = {};
  int axes = 0;
};

/// One tensor over a RowSpace. Strides in elements.
struct RowView {
  void* data = nullptr;
  DType dtype = DType::float32;
  std::int64_t col_stride = 1;
  std::int64_t strides[kMaxRowAxes] = {};

  TIGON_HOST_DEVICE explicit operator bool() const { return data != nullptr; }

  /// Elements from data to the first element of `row`.
  TIGON_HOST_DEVICE std::int64_t offset(const RowSpace& space, std::int64_t row) const {
    if (space.axes <= 1) return row * strides[0];
    std::int64_t at = 0;
    for (int i = space.axes - 1; i > 0; --i) {
      const std::int64_t next = row / space.sizes[i];
      at += (row - next * space.sizes[i]) * strides[i];
      row = next;
    }
    return at + row * strides[0];
  }
};

/// Pairs a tensor with the view to fill; an absent tensor gives an empty view.
struct RowBinding {
  RowBinding(const Tensor* t, RowView* v) : tensor(*t), view(v) {}
  RowBinding(const Tensor& t, RowView* v) : tensor(t), view(v) {}

  Tensor tensor;
  RowView* view;
};

/// Folds all axes but the last of tensors of one shape. The first binding must be present.
RowSpace fold_rows(std::initializer_list<RowBinding> bindings);

/// Product of all axes but the last.
std::int64_t row_count(const Tensor& t);

/// For kernels without a meaning for rows: where all views are dense, one long row of them.
void merge_rows_into_columns(RowSpace& space, std::int64_t& cols,
                             std::initializer_list<RowView*> views);

/// A [cols] tensor as a view whose rows are all the same; empty when absent.
RowView fold_vector(const Tensor& t);

/// A contiguous tensor with one value per row of `as`, shaped [..., 1] so that it folds with it.
Tensor per_row(const Tensor& values, const Tensor& as);

/// A tensor with one value per row of `as` and strides of its own, or one element for all rows,
/// shaped [..., 1] so that it folds with it.
Tensor column(const Tensor& values, const Tensor& as);

/// An element of an int64 or int32 view.
TIGON_HOST_DEVICE inline std::int64_t load_integer(const RowView& view, std::int64_t at) {
  return view.dtype == DType::int32 ? static_cast<const std::int32_t*>(view.data)[at]
                                    : static_cast<const std::int64_t*>(view.data)[at];
}

/// True when 16-byte accesses work on every row: unit column stride, aligned base and row strides,
/// and a row length that is a multiple of 16 bytes.
bool is_vectorisable(const RowView& view, const RowSpace& space, std::int64_t cols);
/// The same for all of these; absent ones do not count.
bool are_vectorisable(std::initializer_list<const RowView*> views, const RowSpace& space,
                      std::int64_t cols);

}  // namespace tigon
