#include "tigon/ops/rms_norm.h"

#include "base/check.h"
#include "kernels/registry.h"
#include "kernels/rms_norm.h"
#include "tigon/ops/add_rms_norm.h"

// add_rms_norm is rms_norm with a residual in front: both share the seam and the checks.
namespace tigon {
namespace {

RmsNormForward forward(const char* op, const Context& ctx, const Tensor& x, const Tensor& residual,
                       const Tensor& weight, const RmsNormOptions& options, const Tensor& y,
                       const Tensor& sum, const Tensor& rstd) {
  const Checker check(op, ctx);
  check.floating(x, "x");
  check.floating(y, "y");
  check.same_shape(y, "y", x, "x");
  if (weight) check.weight(weight, "weight", x.size(-1));
  if (rstd) check.vector(rstd, "rstd", DType::float32, row_count(x));
  if (residual) check.like(residual, "residual", x, "x");
  if (sum) check.like(sum, "sum", x, "x");

  RmsNormForward p{.cols = x.size(-1),
                   .weight = fold_vector(weight),
                   .eps = options.eps,
                   .weight_offset = options.weight_offset,
                   .round_before_weight = options.round_before_weight};
  const Tensor rstd_rows = per_row(rstd, x);
  p.rows = fold_rows(
      {{&x, &p.x}, {&residual, &p.residual}, {&sum, &p.sum}, {&y, &p.y}, {&rstd_rows, &p.rstd}});
  return p;
}

RmsNormBackward backward(const Tensor& dy, const Tensor& dsum, const Tensor& x,
                         const Tensor& weight, const Tensor& rstd, const RmsNormOptions& options,
                         const Tensor& dx, const Tensor& dweight) {
  RmsNormBackward p{.cols = x.size(-1),
                    .weight = fold_vector(weight),
                    .dweight = fold_vector(dweight),
                    .weight_offset = options.weight_offset,
                    .round_before_weight = options.round_before_weight};
  const Tensor rstd_rows = per_row(rstd, x);
  p.rows =
      fold_rows({{&x, &p.x}, {&dy, &p.dy}, {&dsum, &p.dsum}, {&dx, &p.dx}, {&rstd_rows, &p.rstd}});
  return p;
}

void check_backward(const char* op, const Context& ctx, const Tensor& dy, const Tensor& dsum,
                    const Tensor& x, const char* x_name, const Tensor& weight, const Tensor& rstd,
                    const Tensor& dx, const Tensor& dweight) {
  const Checker check(op, ctx);
  check.floating(x, x_name);
  check.floating(dy, "dy");
  check.same_shape(dy, "dy", x, x_name);
  check.vector(rstd, "rstd", DType::float32, row_count(x));
  if (weight) check.weight(weight, "weight", x.size(-1));
  if (dsum) check.like(dsum, "dsum", x, x_name);
  if (dx) check.like(dx, "dx", x, x_name);
  if (dweight) {
    if (!weight) fail(op, ": dweight is wanted but weight is missing");
    check.vector(dweight, "dweight", weight.dtype, x.size(-1));
  }
}

}  // namespace

void rms_norm_forward(const Context& ctx, const Tensor& x, const Tensor& weight,
                      const RmsNormOptions& options, const Tensor& y, const Tensor& rstd) {
  const char* op = "rms_norm_forward";
  launch(ctx, op, forward(op, ctx, x, {}, weight, options, y, {}, rstd));
}

void rms_norm_backward(const Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, const RmsNormOptions& options, const Tensor& dx,
                       const Tensor& dweight) {
  const char* op = "rms_norm_backward";
  check_backward(op, ctx, dy, {}, x, "x", weight, rstd, dx, dweight);
  const RmsNormBackward p = backward(dy, {}, x, weight, rstd, options, dx, dweight);
  Checker(op, ctx).workspace(workspace_bytes(ctx, op, p));
  launch(ctx, op, p);
}

std::size_t rms_norm_backward_workspace(const Context& ctx, const Tensor& x,
                                        const Tensor& dweight) {
  return workspace_bytes(ctx, "rms_norm_backward", backward(x, {}, x, {}, {}, {}, {}, dweight));
}

void add_rms_norm_forward(const Context& ctx, const Tensor& x, const Tensor& residual,
                          const Tensor& weight, const RmsNormOptions& options, const Tensor& y,
                          const Tensor& sum, const Tensor& rstd) {
  const char* op = "add_rms_norm_forward";
  if (!residual || !sum) fail(op, ": ", residual ? "sum" : "residual", " is missing");
  launch(ctx, op, forward(op, ctx, x, residual, weight, options, y, sum, rstd));
}

void add_rms_norm_backward(const Context& ctx, const Tensor& dy, const Tensor& dsum,
                           const Tensor& sum, const Tensor& weight, const Tensor& rstd,
                           const RmsNormOptions& options, const Tensor& dx, const Tensor& dweight) {
  const char* op = "add_rms_norm_backward";
  check_backward(op, ctx, dy, dsum, sum, "sum", weight, rstd, dx, dweight);
  const RmsNormBackward p = backward(dy, dsum, sum, weight, rstd, options, dx, dweight);
  Checker(op, ctx).workspace(workspace_bytes(ctx, op, p));
  launch(ctx, op, p);
}

std::size_t add_rms_norm_backward_workspace(const Context& ctx, const Tensor& sum,
                                            const Tensor& dweight) {
  return rms_norm_backward_workspace(ctx, sum, dweight);
}

}  // namespace tigon
