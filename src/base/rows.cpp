#include "base/rows.h"

#include <algorithm>
#include <array>

namespace tigon {

std::int64_t row_count(const Tensor& t) {
  std::int64_t count = 1;
  for (int i = 0; i + 1 < t.rank; ++i) count *= t.sizes[i];
  return count;
}

RowSpace fold_rows(std::initializer_list<RowBinding> bindings) {
  const Tensor& first = bindings.begin()->tensor;
  std::array<int, kMaxRank> order{};
  int axes = 0;
  for (int i = 0; i + 1 < first.rank; ++i)
    if (first.sizes[i] != 1) order[axes++] = i;
  std::stable_sort(order.begin(), order.begin() + axes,
                   [&](int a, int b) { return first.strides[a] > first.strides[b]; });

  RowSpace space;
  space.count = row_count(first);
  for (const RowBinding& b : bindings) {
    *b.view = {};
    if (!b.tensor) continue;
    b.view->data = b.tensor.data;
    b.view->dtype = b.tensor.dtype;
    b.view->col_stride = b.tensor.size(-1) == 1 ? 1 : b.tensor.stride(-1);
  }
  for (int k = 0; k < axes; ++k) {
    const int axis = order[k];
    const auto merges = [&](const RowBinding& b) {
      return !b.tensor ||
             b.view->strides[space.axes - 1] == b.tensor.strides[axis] * first.sizes[axis];
    };
    const bool merge = space.axes > 0 && std::all_of(bindings.begin(), bindings.end(), merges);
    const int slot = merge ? space.axes - 1 : space.axes++;
    space.sizes[slot] = merge ? space.sizes[slot] * first.sizes[axis] : first.sizes[axis];
    for (const RowBinding& b : bindings)
      if (b.tensor) b.view->strides[slot] = b.tensor.strides[axis];
  }
  return space;
}

void merge_rows_into_columns(RowSpace& space, std::int64_t& cols,
                             std::initializer_list<RowView*> views) {
  if (space.axes != 1) return;
  const auto dense = [&](const RowView* v) {
    return !*v || (v->strides[0] == cols && v->col_stride == 1);
  };
  if (!std::all_of(views.begin(), views.end(), dense)) return;
  cols *= space.count;
  for (RowView* v : views) {
    v->strides[0] = 0;
    v->col_stride = 1;
  }
  space = {};
}

RowView fold_vector(const Tensor& t) {
  RowView view;
  if (!t) return view;
  view.data = t.data;
  view.dtype = t.dtype;
  view.col_stride = t.sizes[0] == 1 ? 1 : t.strides[0];
  return view;
}

namespace {

/// `values` over the leading axes of `as` and a last one of size 1; strides are yet to be set.
Tensor over_rows(const Tensor& values, const Tensor& as) {
  Tensor t = as;
  t.data = values.data;
  t.dtype = values.dtype;
  t.sizes[t.rank - 1] = 1;
  return t;
}

}  // namespace

Tensor per_row(const Tensor& values, const Tensor& as) {
  if (!values) return values;
  Tensor t = over_rows(values, as);
  std::int64_t step = 1;
  for (int i = t.rank - 1; i >= 0; --i) {
    t.strides[i] = step;
    step *= t.sizes[i];
  }
  return t;
}

Tensor column(const Tensor& values, const Tensor& as) {
  if (!values) return values;
  Tensor t = over_rows(values, as);
  const bool one = values.numel() == 1;
  for (int i = 0; i < t.rank; ++i) t.strides[i] = one || i >= values.rank ? 0 : values.strides[i];
  return t;
}

bool is_vectorisable(const RowView& view, const RowSpace& space, std::int64_t cols) {
  const std::int64_t bytes = size_of(view.dtype);
  if (!view) return true;
  if (view.col_stride != 1 || (cols * bytes) % 16 != 0) return false;
  if (reinterpret_cast<std::uintptr_t>(view.data) % 16 != 0) return false;
  for (int i = 0; i < space.axes; ++i)
    if ((view.strides[i] * bytes) % 16 != 0) return false;
  return true;
}

bool are_vectorisable(std::initializer_list<const RowView*> views, const RowSpace& space,
                      std::int64_t cols) {
  return std::all_of(views.begin(), views.end(),
                     [&](const RowView* v) { return is_vectorisable(*v, space, cols); });
}

}  // namespace tigon
