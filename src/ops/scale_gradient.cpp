#include "base/check.h"
#include "kernels/copy_rows.h"
#include "kernels/cross_entropy.h"
#include "kernels/registry.h"
#include "ops/loss.h"
#include "tigon/ops/cross_entropy.h"
#include "tigon/ops/linear_cross_entropy.h"

// Gradients that forward made for an incoming gradient of 1, when another one arrives.
namespace tigon {

void cross_entropy_scale(const Context& ctx, const Tensor& dloss, const Tensor& dlogits,
                         const Tensor& labels, std::int64_t ignore_index, const Tensor& out) {
  const char* op = "cross_entropy_scale";
  const Checker check(op, ctx);
  check.floating(dlogits, "dlogits");
  check.labels(labels, "labels", dlogits, "dlogits", dlogits.size(-1), ignore_index);
  check.scalar(dloss, "dloss");
  check.like(out, "out", dlogits, "dlogits");

  CrossEntropyScale p{
      .cols = dlogits.size(-1), .dloss = scalar(dloss), .ignore_index = ignore_index};
  p.rows =
      fold_rows({{&dlogits, &p.dlogits}, {column(labels, dlogits), &p.labels}, {&out, &p.out}});
  launch(ctx, op, p);
}

void linear_cross_entropy_scale(const Context& ctx, const Tensor& dloss, const Tensor& gradient,
                                const Tensor& out) {
  const char* op = "linear_cross_entropy_scale";
  const Checker check(op, ctx);
  check.scalar(dloss, "dloss");
  check.floating(gradient, "gradient");
  check.floating(out, "out");
  check.same_shape(out, "out", gradient, "gradient");

  CopyRows p{.cols = gradient.size(-1), .scale = scalar(dloss)};
  p.from_rows = fold_rows({{&gradient, &p.from}, {&out, &p.to}});
  p.to_rows = p.from_rows;
  p.count = p.from_rows.count;
  launch(ctx, op, p);
}

}  // namespace tigon
