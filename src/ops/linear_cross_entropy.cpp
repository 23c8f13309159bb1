#include "tigon/ops/linear_cross_entropy.h"

#include "base/check.h"
#include "kernels/copy_rows.h"
#include "kernels/cross_entropy.h"
#include "kernels/registry.h"
#include "ops/linear_head.h"
#include "ops/loss_options.h"

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

CrossEntropyRows chunk_rows(const LinearHead::Chunk& chunk, const Inputs& in,
                            const CrossEntropyOptions& o) {
  return {.rows = chunk.rows,
          .cols = in.weight.size(0),
          .logits = chunk.logits,
          .labels = chunk.labels,
          .weight = fold_vector(in.class_weight),
          .map = logit_map(o.logit_scale, o.softcap),
          .ignore_index = o.ignore_index,
          .label_smoothing = o.label_smoothing,
          .z_loss = o.z_loss};
}

float* scalar(const Tensor& t) { return static_cast<float*>(t.data); }

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

void check(const Context& ctx, const Inputs& in, const Options& o, const Outputs& out) {
  const Checker check(kForward, ctx);
  LinearHead::check(ctx, kForward, head_arguments(in, o, {out.dx, out.dweight, out.dbias}));
  check_options(kForward, o.loss);
  if (in.class_weight) check.weight(in.class_weight, "class_weight", in.weight.size(0));
  if (in.token_weights) check.column(in.token_weights, "token_weights", in.x, "x");
  const bool mean = o.loss.reduction == Reduction::mean;
  if (in.num_items) check.scalar(in.num_items, "num_items");
  if (in.num_items && !mean) fail(kForward, ": num_items is given but reduction is not mean");
  if (out.divisor && !mean) fail(kForward, ": divisor is wanted but reduction is not mean");
  if (out.divisor) check.scalar(out.divisor, "divisor");
  const std::int64_t rows = row_count(in.x);
  const std::int64_t results = o.loss.reduction == Reduction::none ? rows : 1;
  check.vector(out.loss, "loss", DType::float32, results);
  if (out.z_loss) check.vector(out.z_loss, "z_loss", DType::float32, results);
  if (out.token_accuracy)
    check.vector(out.token_accuracy, "token_accuracy", DType::float32, results);
  if (out.lse) check.vector(out.lse, "lse", DType::float32, rows);
}

}  // namespace

void linear_cross_entropy_forward(const Context& ctx, const Inputs& in, const Options& o,
                                  const Outputs& out) {
  Checker(kForward, ctx).workspace(linear_cross_entropy_forward_workspace(ctx, in, o, out));
  Forward f(ctx, in, o, out);
  f.head.select();
  f.head.gather(in.token_weights, f.token_weights);

  CrossEntropyReduce sums{.rows = f.head.counted(),
                          .cols = in.weight.size(0),
                          .labels = f.head.labels(),
                          .weight = fold_vector(in.class_weight),
                          .ignore_index = o.loss.ignore_index,
                          .mean = o.loss.reduction == Reduction::mean};
  const Context reducing = f.arena.rest(ctx);
  if (f.divisor && !in.num_items) {  // before the gradients, which it divides
    sums.divisor = scalar(f.divisor);
    launch(reducing, kForward, sums);
    sums.divisor = nullptr;
  }

  f.head.for_each_chunk([&](const LinearHead::Chunk& chunk) {
    CrossEntropyForward p{.in = chunk_rows(chunk, in, o.loss),
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
    return;
  }
  sums.loss = column_view(f.loss);
  sums.z_loss = column_view(f.z_loss);
  sums.correct = column_view(f.correct);
  sums.given_divisor = scalar(f.divisor);
  sums.total_loss = scalar(out.loss);
  sums.total_z_loss = scalar(out.z_loss);
  sums.token_accuracy = scalar(out.token_accuracy);
  launch(reducing, kForward, sums);
}

std::size_t linear_cross_entropy_forward_workspace(const Context& ctx, const Inputs& in,
                                                   const Options& o, const Outputs& out) {
  check(ctx, in, o, out);
  return Forward(without_workspace(ctx), in, o, out).arena.bytes();
}

void linear_cross_entropy_backward(const Context& ctx, const Tensor& dloss, const Inputs& in,
                                   const Tensor& lse, const Tensor& divisor, const Options& o,
                                   const Gradients& out) {
  Checker check(kBackward, ctx);
  check.workspace(linear_cross_entropy_backward_workspace(ctx, in, o, out));
  check.column(dloss, "dloss", in.x, "x");
  check.vector(lse, "lse", DType::float32, row_count(in.x));
  if (divisor) check.scalar(divisor, "divisor");
  Backward b(ctx, in, o, out);
  b.head.select();
  b.head.gather(dloss, b.dloss);
  b.head.gather(lse, b.lse);
  b.head.for_each_chunk([&](const LinearHead::Chunk& chunk) {
    const CrossEntropyBackward p{.in = chunk_rows(chunk, in, o.loss),
                                 .dloss = column_view(b.dloss, chunk.first),
                                 .lse = column_view(b.lse, chunk.first),
                                 .divisor = scalar(divisor),
                                 .dlogits = chunk.logits};
    launch(ctx, kBackward, p);
  });
}

std::size_t linear_cross_entropy_backward_workspace(const Context& ctx, const Inputs& in,
                                                    const Options& o, const Gradients& out) {
  LinearHead::check(ctx, kBackward, head_arguments(in, o, out));
  check_options(kBackward, o.loss);
  if (in.class_weight)
    Checker(kBackward, ctx).weight(in.class_weight, "class_weight", in.weight.size(0));
  return Backward(without_workspace(ctx), in, o, out).arena.bytes();
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
