#include "tigon/ops/layer_norm.h"

#include "base/check.h"
#include "base/fail.h"
#include "kernels/layer_norm.h"
#include "kernels/registry.h"

namespace tigon {
namespace {

LayerNormBackward backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                           const Tensor& mean, const Tensor& rstd, const Tensor& dx,
                           const Tensor& dweight, const Tensor& dbias) {
  LayerNormBackward p{.cols = x.size(-1),
                      .weight = fold_vector(weight),
                      .dweight = fold_vector(dweight),
                      .dbias = fold_vector(dbias)};
  const Tensor mean_rows = per_row(mean, x);
  const Tensor rstd_rows = per_row(rstd, x);
  p.rows = fold_rows(
      {{&x, &p.x}, {&dy, &p.dy}, {&dx, &p.dx}, {&mean_rows, &p.mean}, {&rstd_rows, &p.rstd}});
  return p;
}

}  // namespace

void layer_norm_forward(const Context& ctx, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, const LayerNormOptions& options, const Tensor& y,
                        const Tensor& mean, const Tensor& rstd) {
  const char* op = "layer_norm_forward";
  const Checker check(op, ctx);
  check.floating(x, "x");
  check.floating(y, "y");
  check.same_shape(y, "y", x, "x");
  if (weight) check.weight(weight, "weight", x.size(-1));
  if (bias) check.weight(bias, "bias", x.size(-1));
  if (mean) check.vector(mean, "mean", DType::float32, row_count(x));
  if (rstd) check.vector(rstd, "rstd", DType::float32, row_count(x));

  LayerNormForward p{.cols = x.size(-1),
                     .weight = fold_vector(weight),
                     .bias = fold_vector(bias),
                     .eps = options.eps};
  const Tensor mean_rows = per_row(mean, x);
  const Tensor rstd_rows = per_row(rstd, x);
  p.rows = fold_rows({{&x, &p.x}, {&y, &p.y}, {&mean_rows, &p.mean}, {&rstd_rows, &p.rstd}});
  launch(ctx, op, p);
}

void layer_norm_backward(const Context& ctx, const Tensor& dy, const Tensor& x,
                         const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                         const Tensor& dx, const Tensor& dweight, const Tensor& dbias) {
  const char* op = "layer_norm_backward";
  const Checker check(op, ctx);
  check.floating(x, "x");
  check.floating(dy, "dy");
  check.same_shape(dy, "dy", x, "x");
  check.vector(mean, "mean", DType::float32, row_count(x));
  check.vector(rstd, "rstd", DType::float32, row_count(x));
  if (weight) check.weight(weight, "weight", x.size(-1));
  if (dx) check.like(dx, "dx", x, "x");
  if (dweight) {
    if (!weight) fail(op, ": dweight is wanted but weight is missing");
    check.vector(dweight, "dweight", weight.dtype, x.size(-1));
  }
  if (dbias) {
    check.floating(dbias, "dbias");
    check.vector(dbias, "dbias", dbias.dtype, x.size(-1));
  }
  const LayerNormBackward p = backward(dy, x, weight, mean, rstd, dx, dweight, dbias);
  check.workspace(workspace_bytes(ctx, op, p));
  launch(ctx, op, p);
}

std::size_t layer_norm_backward_workspace(const Context& ctx, const Tensor& x,
                                          const Tensor& dweight, const Tensor& dbias) {
  return workspace_bytes(ctx, "layer_norm_backward",
                         backward(x, x, {}, {}, {}, {}, dweight, dbias));
}

}  // namespace tigon
