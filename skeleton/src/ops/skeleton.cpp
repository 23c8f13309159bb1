#include "tigon/ops/skeleton.h"

#include "base/check.h"
#include "kernels/registry.h"
#include "kernels/skeleton.h"

namespace tigon {
namespace {

SkeletonBackward backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& dx,
                          const Tensor& dweight) {
  SkeletonBackward p{
      .cols = x.size(-1), .weight = fold_vector(weight), .dweight = fold_vector(dweight)};
  p.rows = fold_rows({{&x, &p.x}, {&dy, &p.dy}, {&dx, &p.dx}});
  return p;
}

}  // namespace

void skeleton_forward(const Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& y) {
  const char* op = "skeleton_forward";
  const Checker check(op, ctx);
  check.floating(x, "x");
  check.weight(weight, "weight", x.size(-1));
  check.like(y, "y", x, "x");

  SkeletonForward p{.cols = x.size(-1), .weight = fold_vector(weight)};
  p.rows = fold_rows({{&x, &p.x}, {&y, &p.y}});
  launch(ctx, op, p);
}

void skeleton_backward(const Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& dx, const Tensor& dweight) {
  const char* op = "skeleton_backward";
  const Checker check(op, ctx);
  check.floating(x, "x");
  check.like(dy, "dy", x, "x");
  check.weight(weight, "weight", x.size(-1));
  if (dx) check.like(dx, "dx", x, "x");
  if (dweight) check.vector(dweight, "dweight", weight.dtype, x.size(-1));

  const SkeletonBackward p = backward(dy, x, weight, dx, dweight);
  check.workspace(workspace_bytes(ctx, op, p));
  launch(ctx, op, p);
}

std::size_t skeleton_backward_workspace(const Context& ctx, const Tensor& x,
                                        const Tensor& dweight) {
  return workspace_bytes(ctx, "skeleton_backward", backward(x, x, {}, {}, dweight));
}

}  // namespace tigon
