#include "tigon/ops/linear_cross_entropy.h"

#include "base/check.h"
#include "kernels/cross_entropy.h"
#include "kernels/registry.h"
#include "ops/linear_head.h"
#include "ops/loss.h"

namespace tigon {
namespace {

using Inputs = LinearCrossEntropyInputs;
using Options = LinearCrossEntropyOptions;
using Outputs = LinearCrossEntropyOutputs;
using Gradients = LinearCrossEntropyGradients;

constexpr const char* kForward = "linear_cross_entropy_forward";
constexpr const char* kBackward = "linear_cross_entropy_backward";

LinearHead::Arguments head_arguments(const Inputs& in, const Options& o, const Gradients& out) {
  return {.x = in.x,
          .weight = in.weight,
          .bias = in.bias,
          .labels = in.labels,
          .ignore_index = o.loss.ignore_index,
          .chunk_rows = o.chunk_rows,
          .sum_in_float32 = o.sum_in_float32,
          .dx = out.dx,
          .dweight = out.dweight,
          .dbias = out.dbias};
}

/// What both directions check.
void check(const Context& ctx, const char* op, const Inputs& in, const Options& o,
           const Gradients& out) {
  LinearHead::check(ctx, op, head_arguments(in, o, out));
  check_options(op, o.loss);
  if (in.class_weight) Checker(op, ctx).weight(in.class_weight, "class_weight", in.weight.size(0));
}

CrossEntropyRows rows_of(const LinearHead::Part& chunk, const Inputs& in,
                         const CrossEntropyOptions& o) {
  CrossEntropyRows p = cross_entropy_rows(o, in.weight.size(0), in.class_weight);
  p.rows = chunk.rows;
  p.logits = chunk.logits;
  p.labels = chunk.labels;
  return p;
}

/// One value per row that counts, for the sums and for what is scattered to the outputs.
struct Forward {
  Forward(const Context& ctx, const Inputs& in, const Options& o, const Outputs& out)
      : arena(ctx),
        head(ctx, kForward, head_arguments(in, o, {out.dx, out.dweight, out.dbias}), arena) {
    const auto column = [&](bool wanted) {
      return wanted ? arena.take(DType::float32, {head.rows()}) : Tensor{};
    };
    loss = column(true);
    z_loss = column(bool(out.z_loss));
    correct = column(bool(out.token_accuracy));
    lse = column(bool(out.lse));
    token_weights = column(bool(in.token_weights));
    if (o.loss.reduction == Reduction::mean)
      divisor = in.num_items  ? in.num_items
                : out.divisor ? out.divisor
                              : arena.take(DType::float32, {1});
    const CrossEntropyReduce sums{.rows = {.count = head.rows()}};
    arena.need_kernel_workspace(workspace_bytes(ctx, kForward, sums));
  }

  Arena arena;
  LinearHead head;
  Tensor loss, z_loss, correct, lse, token_weights, divisor;
};

struct Backward {
  Backward(const Context& ctx, const Inputs& in, const Options& o, const Gradients& out)
      : arena(ctx),
        head(ctx, kBackward, head_arguments(in, o, out), arena),
        dloss(arena.take(DType::float32, {head.rows()})),
        lse(arena.take(DType::float32, {head.rows()})) {}

  Arena arena;
  LinearHead head;
  Tensor dloss, lse;
};

}  // namespace

void linear_cross_entropy_forward(const Context& ctx, const Inputs& in, const Options& o,
                                  const Outputs& out) {
  Checker(kForward, ctx).workspace(linear_cross_entropy_forward_workspace(ctx, in, o, out));
  Forward f(ctx, in, o, out);
  f.head.select();
  f.head.gather(in.token_weights, f.token_weights);

  const CrossEntropyReduce sums{.rows = f.head.counted(),
                                .cols = in.weight.size(0),
                                .labels = f.head.labels(),
                                .weight = fold_vector(in.class_weight),
                                .ignore_index = o.loss.ignore_index,
                                .mean = o.loss.reduction == Reduction::mean,
                                .loss = column_view(f.loss),
                                .z_loss = column_view(f.z_loss),
                                .correct = column_view(f.correct)};
  const Context reducing = f.arena.rest(ctx);
  // Before the gradients, which it divides.
  if (f.divisor && !in.num_items) launch(reducing, kForward, counting(sums, f.divisor));

  f.head.for_each_chunk([&](const LinearHead::Part& chunk) {
    CrossEntropyForward p{.in = rows_of(chunk, in, o.loss),
                          .row_weight = column_view(f.token_weights, chunk.first),
                          .divisor = scalar(f.divisor),
                          .loss = column_view(f.loss, chunk.first),
                          .z_loss = column_view(f.z_loss, chunk.first),
                          .correct = column_view(f.correct, chunk.first),
                          .lse = column_view(f.lse, chunk.first)};
    if (out.dx || out.dweight || out.dbias) p.dlogits = chunk.logits;
    launch(ctx, kForward, p);
  });

  f.head.scatter(f.lse, out.lse);
  if (o.loss.reduction == Reduction::none) {
    f.head.scatter(f.loss, out.loss);
    f.head.scatter(f.z_loss, out.z_loss);
    f.head.scatter(f.correct, out.token_accuracy);
  } else {
    launch(reducing, kForward, totalling(sums, out, f.divisor));
  }
}

std::size_t linear_cross_entropy_forward_workspace(const Context& ctx, const Inputs& in,
                                                   const Options& o, const Outputs& out) {
  check(ctx, kForward, in, o, {out.dx, out.dweight, out.dbias});
  const Checker checker(kForward, ctx);
  if (in.token_weights) checker.column(in.token_weights, "token_weights", in.x, "x");
  if (in.num_items) checker.scalar(in.num_items, "num_items");
  if (in.num_items && o.loss.reduction != Reduction::mean)
    fail(kForward, ": num_items is given but reduction is not mean");
  check_results(checker, kForward, out, row_count(in.x), o.loss.reduction);
  return Forward(without_workspace(ctx), in, o, out).arena.bytes();
}

void linear_cross_entropy_backward(const Context& ctx, const Tensor& dloss, const Inputs& in,
                                   const Tensor& lse, const Tensor& divisor, const Options& o,
                                   const Gradients& out) {
  const Checker checker(kBackward, ctx);
  checker.workspace(linear_cross_entropy_backward_workspace(ctx, in, o, out));
  checker.column(dloss, "dloss", in.x, "x");
  checker.vector(lse, "lse", DType::float32, row_count(in.x));
  if (divisor) checker.scalar(divisor, "divisor");
  Backward b(ctx, in, o, out);
  b.head.select();
  b.head.gather(dloss, b.dloss);
  b.head.gather(lse, b.lse);
  b.head.for_each_chunk([&](const LinearHead::Part& chunk) {
    const CrossEntropyBackward p{.in = rows_of(chunk, in, o.loss),
                                 .dloss = column_view(b.dloss, chunk.first),
                                 .lse = column_view(b.lse, chunk.first),
                                 .divisor = scalar(divisor),
                                 .dlogits = chunk.logits};
    launch(ctx, kBackward, p);
  });
}

std::size_t linear_cross_entropy_backward_workspace(const Context& ctx, const Inputs& in,
                                                    const Options& o, const Gradients& out) {
  check(ctx, kBackward, in, o, out);
  return Backward(without_workspace(ctx), in, o, out).arena.bytes();
}

}  // namespace tigon
