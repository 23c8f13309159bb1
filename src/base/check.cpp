#include "base/check.h"

#include "base/fail.h"
#include "base/rows.h"

namespace tigon {

void Checker::device(const Tensor& t, std::string_view name) const {
  if (t.device != ctx_.device)
    fail(op_, ": ", name, " must be on ", to_string(ctx_.device), ", got ", to_string(t.device));
}

void Checker::floating(const Tensor& t, std::string_view name, int min_rank) const {
  if (!t) fail(op_, ": ", name, " is missing");
  if (t.rank < min_rank)
    fail(op_, ": ", name, " must have at least ", min_rank, min_rank == 1 ? " axis" : " axes",
         ", got ", shape_string(t));
  if (!is_floating(t.dtype))
    fail(op_, ": ", name, " must be float32, bfloat16 or float16, got ", to_string(t.dtype));
  for (int i = 0; i < t.rank; ++i)
    if (t.strides[i] < 0)
      fail(op_, ": ", name, " must not have negative strides, got ", t.strides[i], " on axis ", i);
  device(t, name);
}

void Checker::same_shape(const Tensor& t, std::string_view name, const Tensor& as,
                         std::string_view as_name) const {
  if (!t) fail(op_, ": ", name, " is missing");
  bool same = t.rank == as.rank;
  for (int i = 0; same && i < t.rank; ++i) same = t.sizes[i] == as.sizes[i];
  if (!same)
    fail(op_, ": ", name, " must have ", as_name, "'s shape ", shape_string(as), ", got ",
         shape_string(t));
}

void Checker::like(const Tensor& t, std::string_view name, const Tensor& as,
                   std::string_view as_name) const {
  floating(t, name);
  same_shape(t, name, as, as_name);
  same_dtype(t, name, as.dtype);
}

void Checker::same_dtype(const Tensor& t, std::string_view name, DType dtype) const {
  if (t.dtype != dtype)
    fail(op_, ": ", name, " must be ", to_string(dtype), ", got ", to_string(t.dtype));
}

void Checker::vector(const Tensor& t, std::string_view name, DType dtype, std::int64_t size) const {
  if (!t || t.numel() != size)
    fail(op_, ": ", name, " must have ", size, " elements, got ", shape_string(t));
  if (!t.is_contiguous())
    fail(op_, ": ", name, " must be contiguous, got a strided ", shape_string(t));
  same_dtype(t, name, dtype);
  device(t, name);
}

void Checker::weight(const Tensor& t, std::string_view name, std::int64_t size) const {
  floating(t, name);
  if (t.rank != 1 || t.sizes[0] != size)
    fail(op_, ": ", name, " must be [", size, "], got ", shape_string(t));
}

void Checker::scalar(const Tensor& t, std::string_view name) const {
  vector(t, name, DType::float32, 1);
}

void Checker::leading_shape(const Tensor& t, std::string_view name, const Tensor& as,
                            std::string_view as_name) const {
  if (!t) fail(op_, ": ", name, " is missing");
  bool same = t.rank == as.rank - 1;
  for (int i = 0; same && i < t.rank; ++i) same = t.sizes[i] == as.sizes[i];
  if (!same)
    fail(op_, ": ", name, " must have the shape of ", as_name, " ", shape_string(as),
         " without its last axis, got ", shape_string(t));
  device(t, name);
}

void Checker::column(const Tensor& t, std::string_view name, const Tensor& as,
                     std::string_view as_name) const {
  leading_shape(t, name, as, as_name);
  same_dtype(t, name, DType::float32);
}

void Checker::labels(const Tensor& t, std::string_view name, const Tensor& as,
                     std::string_view as_name, std::int64_t classes,
                     std::int64_t ignore_index) const {
  leading_shape(t, name, as, as_name);
  if (t.dtype != DType::int64 && t.dtype != DType::int32)
    fail(op_, ": ", name, " must be int64 or int32, got ", to_string(t.dtype));
  if (ctx_.device.type != DeviceType::cpu) return;

  const Tensor row_major = per_row(t, as);
  const Tensor values = tigon::column(t, as);
  RowView order;
  RowView view;
  const RowSpace rows = fold_rows({{&row_major, &order}, {&values, &view}});
  for (std::int64_t row = 0; row < rows.count; ++row) {
    const std::int64_t label = load_integer(view, view.offset(rows, row));
    if (label != ignore_index && (label < 0 || label >= classes))
      fail(op_, ": ", name, " must be in [0, ", classes, ") or ignore_index ", ignore_index,
           ", got ", label, " in row ", row);
  }
}

void Checker::workspace(std::size_t needed) const {
  if (ctx_.workspace_bytes < needed)
    fail(op_, ": workspace must be at least ", needed, " bytes, got ", ctx_.workspace_bytes);
}

}  // namespace tigon
