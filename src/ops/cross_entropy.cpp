#include "tigon/ops/cross_entropy.h"

#include "base/check.h"
#include "base/fail.h"
#include "kernels/cross_entropy.h"
#include "kernels/registry.h"

namespace tigon {
namespace {

void check(const Checker& check, const char* op, const Tensor& logits, const Tensor& labels,
           const Tensor& weight, const CrossEntropyOptions& o) {
  check.floating(logits, "logits");
  const std::int64_t classes = logits.size(-1);
  if (classes == 0) fail(op, ": logits must have at least one class, got ", shape_string(logits));
  check.labels(labels, "labels", logits, "logits", classes, o.ignore_index);
  if (weight) check.weight(weight, "weight", classes);
  // Written so that NaN fails too.
  if (!(o.label_smoothing >= 0.0F && o.label_smoothing <= 1.0F))
    fail(op, ": label_smoothing must be in [0, 1], got ", o.label_smoothing);
  if (!(o.z_loss >= 0.0F)) fail(op, ": z_loss must be at least 0, got ", o.z_loss);
  if (!(o.softcap >= 0.0F)) fail(op, ": softcap must be positive or absent, got ", o.softcap);
}

/// An output with one value per row, or one in all.
void check_result(const Checker& check, const Tensor& t, const char* name, const Tensor& logits,
                  Reduction reduction) {
  if (t)
    check.vector(t, name, DType::float32, reduction == Reduction::none ? row_count(logits) : 1);
}

CrossEntropyRows rows_of(const Tensor& weight, const Tensor& logits, const CrossEntropyOptions& o) {
  CrossEntropyRows in{.cols = logits.size(-1),
                      .weight = fold_vector(weight),
                      .ignore_index = o.ignore_index,
                      .label_smoothing = o.label_smoothing,
                      .z_loss = o.z_loss};
  in.map = o.softcap > 0.0F ? LogitMap{o.softcap, o.logit_scale / o.softcap}
                            : LogitMap{o.logit_scale, 0.0F};
  return in;
}

float* scalar(const Tensor& t) { return static_cast<float*>(t.data); }

/// The workspace of the forward direction: columns of one value per row that are only summed, a
/// divisor that is not an output, and what the reduction itself needs.
struct Workspace {
  Workspace(const Context& ctx, const Tensor& logits, const CrossEntropyOptions& o,
            const CrossEntropyOutputs& out)
      : base(static_cast<char*>(ctx.workspace)) {
    const auto rows = static_cast<std::size_t>(row_count(logits)) * sizeof(float);
    const bool reduced = o.reduction != Reduction::none;
    const auto take = [&](bool wanted, std::size_t bytes_wanted) {
      Tensor t;
      if (!wanted) return t;
      t = contiguous(base == nullptr ? nullptr : base + bytes, DType::float32, ctx.device,
                     {static_cast<std::int64_t>(bytes_wanted / sizeof(float))});
      bytes += (bytes_wanted + 255) / 256 * 256;
      return t;
    };
    loss = reduced ? take(true, rows) : out.loss;
    z_loss = reduced ? take(bool(out.z_loss), rows) : out.z_loss;
    correct = reduced ? take(bool(out.token_accuracy), rows) : out.token_accuracy;
    const bool need = o.reduction == Reduction::mean && bool(out.dlogits);
    divisor = out.divisor ? out.divisor : take(need, sizeof(float));
  }

  char* base;
  std::size_t bytes = 0;  // up to where the reduction's own part begins
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
  const Tensor loss = per_row(w.loss, logits);
  const Tensor z_loss = per_row(w.z_loss, logits);
  const Tensor correct = per_row(w.correct, logits);
  const Tensor label_rows = column(labels, logits);
  p.rows = fold_rows(
      {{&loss, &p.loss}, {&z_loss, &p.z_loss}, {&correct, &p.correct}, {&label_rows, &p.labels}});
  return p;
}

}  // namespace

void cross_entropy_forward(const Context& ctx, const Tensor& logits, const Tensor& labels,
                           const Tensor& weight, const Tensor& row_weight,
                           const CrossEntropyOptions& o, const CrossEntropyOutputs& out) {
  const char* op = "cross_entropy_forward";
  const Checker checker(op, ctx);
  check(checker, op, logits, labels, weight, o);
  if (row_weight) checker.column(row_weight, "row_weight", logits, "logits");
  if (!out.loss) fail(op, ": loss is missing");
  check_result(checker, out.loss, "loss", logits, o.reduction);
  check_result(checker, out.z_loss, "z_loss", logits, o.reduction);
  check_result(checker, out.token_accuracy, "token_accuracy", logits, o.reduction);
  if (out.lse) checker.vector(out.lse, "lse", DType::float32, row_count(logits));
  if (out.divisor) {
    if (o.reduction != Reduction::mean) fail(op, ": divisor is wanted but reduction is not mean");
    checker.scalar(out.divisor, "divisor");
  }
  if (out.dlogits) {
    checker.floating(out.dlogits, "dlogits");
    checker.same_shape(out.dlogits, "dlogits", logits, "logits");
    checker.same_dtype(out.dlogits, "dlogits", logits.dtype);
  }
  checker.workspace(cross_entropy_forward_workspace(ctx, logits, o, out));

  const Workspace w(ctx, logits, o, out);
  Context reducing = ctx;
  reducing.workspace = w.base + w.bytes;
  reducing.workspace_bytes = ctx.workspace_bytes - w.bytes;
  CrossEntropyReduce sums = reduction(logits, labels, weight, o, w);

  // The divisor first: the gradient is divided by it before its only rounding.
  if (w.divisor) {
    CrossEntropyReduce count = sums;
    count.loss = count.z_loss = count.correct = {};
    count.divisor = scalar(w.divisor);
    launch(reducing, op, count);
  }

  CrossEntropyForward p{.in = rows_of(weight, logits, o), .divisor = scalar(w.divisor)};
  const Tensor label_rows = column(labels, logits);
  const Tensor row_weights = column(row_weight, logits);
  const Tensor loss = per_row(w.loss, logits);
  const Tensor z_loss = per_row(w.z_loss, logits);
  const Tensor correct = per_row(w.correct, logits);
  const Tensor lse = per_row(out.lse, logits);
  p.in.rows = fold_rows({{&logits, &p.in.logits},
                         {&label_rows, &p.in.labels},
                         {&row_weights, &p.row_weight},
                         {&loss, &p.loss},
                         {&z_loss, &p.z_loss},
                         {&correct, &p.correct},
                         {&lse, &p.lse},
                         {&out.dlogits, &p.dlogits}});
  launch(ctx, op, p);

  if (o.reduction == Reduction::none) return;
  sums.given_divisor = scalar(w.divisor);
  sums.total_loss = scalar(out.loss);
  sums.total_z_loss = scalar(out.z_loss);
  sums.token_accuracy = scalar(out.token_accuracy);
  launch(reducing, op, sums);
}

std::size_t cross_entropy_forward_workspace(const Context& ctx, const Tensor& logits,
                                            const CrossEntropyOptions& o,
                                            const CrossEntropyOutputs& out) {
  const CrossEntropyReduce p{.rows = {.count = row_count(logits)}};
  return Workspace(ctx, logits, o, out).bytes + workspace_bytes(ctx, "cross_entropy_forward", p);
}

void cross_entropy_backward(const Context& ctx, const Tensor& dloss, const Tensor& logits,
                            const Tensor& labels, const Tensor& weight, const Tensor& lse,
                            const Tensor& divisor, const CrossEntropyOptions& o,
                            const Tensor& dlogits) {
  const char* op = "cross_entropy_backward";
  const Checker checker(op, ctx);
  check(checker, op, logits, labels, weight, o);
  if (o.reduction == Reduction::none)
    checker.column(dloss, "dloss", logits, "logits");
  else
    checker.scalar(dloss, "dloss");
  checker.vector(lse, "lse", DType::float32, row_count(logits));
  if (o.reduction == Reduction::mean) checker.scalar(divisor, "divisor");
  checker.floating(dlogits, "dlogits");
  checker.same_shape(dlogits, "dlogits", logits, "logits");
  checker.same_dtype(dlogits, "dlogits", logits.dtype);

  CrossEntropyBackward p{.in = rows_of(weight, logits, o)};
  if (o.reduction == Reduction::mean) p.divisor = scalar(divisor);
  const Tensor label_rows = column(labels, logits);
  const Tensor dloss_rows = column(dloss, logits);
  const Tensor lse_rows = per_row(lse, logits);
  p.in.rows = fold_rows({{&logits, &p.in.logits},
                         {&label_rows, &p.in.labels},
                         {&dloss_rows, &p.dloss},
                         {&lse_rows, &p.lse},
                         {&dlogits, &p.dlogits}});
  launch(ctx, op, p);
}

void cross_entropy_scale(const Context& ctx, const Tensor& dloss, const Tensor& dlogits,
                         const Tensor& labels, std::int64_t ignore_index, const Tensor& out) {
  const char* op = "cross_entropy_scale";
  const Checker checker(op, ctx);
  checker.floating(dlogits, "dlogits");
  checker.labels(labels, "labels", dlogits, "dlogits", dlogits.size(-1), ignore_index);
  checker.scalar(dloss, "dloss");
  checker.floating(out, "out");
  checker.same_shape(out, "out", dlogits, "dlogits");
  checker.same_dtype(out, "out", dlogits.dtype);

  CrossEntropyScale p{
      .cols = dlogits.size(-1), .dloss = scalar(dloss), .ignore_index = ignore_index};
  const Tensor label_rows = column(labels, dlogits);
  p.rows = fold_rows({{&dlogits, &p.dlogits}, {&label_rows, &p.labels}, {&out, &p.out}});
  launch(ctx, op, p);
}

}  // namespace tigon
