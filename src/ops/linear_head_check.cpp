#include "base/check.h"
#include "base/fail.h"
#include "ops/linear_head.h"

namespace tigon {
namespace {

bool has_unit_stride(const Tensor& t) {
  return (t.stride(1) == 1 && t.stride(0) >= t.size(1)) ||
         (t.stride(0) == 1 && t.stride(1) >= t.size(0)) || t.is_contiguous();
}

}  // namespace

void LinearHead::check(const Context& ctx, const char* op, const Arguments& a) {
  const Checker check(op, ctx);
  check.floating(a.x, "x");
  if (a.weight && a.weight.numel() == 0)
    fail(op, ": weight is empty, ", shape_string(a.weight), ", but must be [V, ", a.x.size(-1),
         "]: a ZeRO-3 or FSDP shard that is read outside its module looks so; gather it first");
  check.floating(a.weight, "weight");
  if (a.weight.rank != 2 || a.weight.size(1) != a.x.size(-1))
    fail(op, ": weight must be [V, ", a.x.size(-1), "], got ", shape_string(a.weight));
  if (a.weight.dtype != a.x.dtype)
    fail(op, ": x and weight must share a type, got ", to_string(a.x.dtype), " and ",
         to_string(a.weight.dtype));
  if (!has_unit_stride(a.weight))
    fail(op, ": weight must be a matrix or its transpose, got strides [", a.weight.stride(0), ", ",
         a.weight.stride(1), "]");
  const std::int64_t vocab = a.weight.size(0);
  if (a.bias) check.weight(a.bias, "bias", vocab);
  check.labels(a.labels, "labels", a.x, "x", vocab, a.ignore_index);
  if (a.chunk_rows < 0) fail(op, ": chunk_rows must be at least 1, got ", a.chunk_rows);
  if (a.dx) {
    check.floating(a.dx, "dx");
    check.same_shape(a.dx, "dx", a.x, "x");
    check.same_dtype(a.dx, "dx", a.x.dtype);
  }
  if (a.dweight) {
    check.vector(a.dweight, "dweight", a.weight.dtype, a.weight.numel());
    check.same_shape(a.dweight, "dweight", a.weight, "weight");
  }
  if (a.dbias && !a.bias) fail(op, ": dbias is wanted but bias is missing");
  if (a.dbias) check.vector(a.dbias, "dbias", a.bias.dtype, vocab);
}

}  // namespace tigon
