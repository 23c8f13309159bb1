#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/rows.h"
#include "tigon/tensor.h"

// Matrices over memory that belongs to other tensors, as products take them.
namespace tigon {

/// Of the type and device of `like`.
inline Tensor matrix(void* data, const Tensor& like, std::int64_t rows, std::int64_t cols,
                     std::int64_t row_stride) {
  Tensor t = contiguous(data, like.dtype, like.device, {rows, cols});
  t.strides[0] = row_stride;
  return t;
}

/// Rows `first` and on of a matrix.
inline Tensor rows_of_matrix(Tensor t, std::int64_t first, std::int64_t count) {
  t.data = static_cast<std::byte*>(t.data) + first * t.stride(0) * size_of(t.dtype);
  t.sizes[0] = count;
  return t;
}

inline Tensor transposed(Tensor t) {
  std::swap(t.sizes[0], t.sizes[1]);
  std::swap(t.strides[0], t.strides[1]);
  return t;
}

/// Rows `first` and on of a folded tensor whose rows lie at one distance.
inline Tensor rows_in_place(const RowView& view, const Tensor& of, std::int64_t first,
                            std::int64_t count) {
  const std::int64_t stride = view.strides[0];
  return rows_of_matrix(matrix(view.data, of, count, of.size(-1), stride), first, count);
}

/// What a matrix product can read or write as it is.
inline bool is_matrix(const RowView& view, const RowSpace& space, std::int64_t cols) {
  return space.axes == 1 && view.col_stride == 1 && view.strides[0] >= cols;
}

/// The rows of a matrix as kernels see them.
inline RowView row_view(const Tensor& t) {
  return {.data = t.data, .dtype = t.dtype, .strides = {t.stride(0)}};
}

}  // namespace tigon
