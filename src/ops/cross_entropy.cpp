#include "tigon/ops/cross_entropy.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/fail.h"
#include "kernels/cross_entropy.h"
#include "kernels/registry.h"
#include "ops/loss.h"

namespace tigon {
namespace {

constexpr const char* kForward = "cross_entropy_forward";

/// Checks what every direction takes; all but the views of rows of its seam.
CrossEntropyRows checked(const Checker& check, const char* op, const Tensor& logits,
                         const Tensor& labels, const Tensor& weight, const CrossEntropyOptions& o) {
  check.floating(logits, "logits");
  const std::int64_t classes = logits.size(-1);
  if (classes == 0) fail(op, ": logits must have at least one class, got ", shape_string(logits));
  check.labels(labels, "labels", logits, "logits", classes, o.ignore_index);
  if (weight) check.weight(weight, "weight", classes);
  check_options(op, o);
  return cross_entropy_rows(o, classes, weight);
}

/// The forward direction's workspace: values per row that are only summed, and a divisor that is
/// not an output. What is left is the reduction's.
struct Workspace {
  Workspace(const Context& ctx, const Tensor& logits, const CrossEntropyOptions& o,
            const CrossEntropyOutputs& out)
      : arena(ctx), loss(out.loss), z_loss(out.z_loss), correct(out.token_accuracy) {
    if (o.reduction != Reduction::none)
      for (Tensor* t : {&loss, &z_loss, &correct})
        if (*t) *t = arena.take(DType::float32, {row_count(logits)});
    divisor = out.divisor;
    if (!divisor && o.reduction == Reduction::mean && out.dlogits)
      divisor = arena.take(DType::float32, {1});
    const CrossEntropyReduce sums{.rows = {.count = row_count(logits)}};
    arena.need_kernel_workspace(workspace_bytes(ctx, kForward, sums));
  }

  Arena arena;
  Tensor loss;
  Tensor z_loss;
  Tensor correct;
  Tensor divisor;
};

CrossEntropyReduce reduction(const Tensor& logits, const Tensor& labels, const Tensor& weight,
                             const CrossEntropyOptions& o, const Workspace& w) {
  CrossEntropyReduce p{.cols = logits.size(-1),
                       .weight = fold_vector(weight),
                       .ignore_index = o.ignore_index,
                       .mean = o.reduction == Reduction::mean};
  p.rows = fold_rows({{per_row(w.loss, logits), &p.loss},
                      {per_row(w.z_loss, logits), &p.z_loss},
                      {per_row(w.correct, logits), &p.correct},
                      {column(labels, logits), &p.labels}});
  return p;
}

}  // namespace

void cross_entropy_forward(const Context& ctx, const Tensor& logits, const Tensor& labels,
                           const Tensor& weight, const CrossEntropyOptions& o,
                           const CrossEntropyOutputs& out) {
  const char* op = kForward;
  const Checker checker(op, ctx);
  CrossEntropyForward p{.in = checked(checker, op, logits, labels, weight, o)};
  check_results(checker, op, out, row_count(logits), o.reduction);
  if (out.dlogits) checker.like(out.dlogits, "dlogits", logits, "logits");
  checker.workspace(cross_entropy_forward_workspace(ctx, logits, o, out));

  const Workspace w(ctx, logits, o, out);
  const Context reducing = w.arena.rest(ctx);
  const CrossEntropyReduce sums = reduction(logits, labels, weight, o, w);
  // The divisor first: the gradient is divided by it before its only rounding.
  if (w.divisor) launch(reducing, op, counting(sums, w.divisor));

  p.divisor = scalar(w.divisor);
  p.in.rows = fold_rows({{&logits, &p.in.logits},
                         {column(labels, logits), &p.in.labels},
                         {per_row(w.loss, logits), &p.loss},
                         {per_row(w.z_loss, logits), &p.z_loss},
                         {per_row(w.correct, logits), &p.correct},
                         {per_row(out.lse, logits), &p.lse},
                         {&out.dlogits, &p.dlogits}});
  launch(ctx, op, p);

  if (o.reduction != Reduction::none) launch(reducing, op, totalling(sums, out, w.divisor));
}

std::size_t cross_entropy_forward_workspace(const Context& ctx, const Tensor& logits,
                                            const CrossEntropyOptions& o,
                                            const CrossEntropyOutputs& out) {
  return Workspace(without_workspace(ctx), logits, o, out).arena.bytes();
}

void cross_entropy_backward(const Context& ctx, const Tensor& dloss, const Tensor& logits,
                            const Tensor& labels, const Tensor& weight, const Tensor& lse,
                            const Tensor& divisor, const CrossEntropyOptions& o,
                            const Tensor& dlogits) {
  const char* op = "cross_entropy_backward";
  const Checker checker(op, ctx);
  CrossEntropyBackward p{.in = checked(checker, op, logits, labels, weight, o)};
  if (o.reduction == Reduction::none)
    checker.column(dloss, "dloss", logits, "logits");
  else
    checker.scalar(dloss, "dloss");
  checker.vector(lse, "lse", DType::float32, row_count(logits));
  if (o.reduction == Reduction::mean) checker.scalar(divisor, "divisor");
  checker.like(dlogits, "dlogits", logits, "logits");

  p.tile = {.first = 0, .cols = p.in.cols};
  if (o.reduction == Reduction::mean) p.divisor = scalar(divisor);
  p.in.rows = fold_rows({{&logits, &p.in.logits},
                         {column(labels, logits), &p.in.labels},
                         {column(dloss, logits), &p.dloss},
                         {per_row(lse, logits), &p.lse},
                         {&dlogits, &p.dlogits}});
  launch(ctx, op, p);
}

}  // namespace tigon
