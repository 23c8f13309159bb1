#include "ops/linear_cross_entropy.h"

#include "base/check.h"
#include "kernels/registry.h"

namespace tigon {
namespace {

using Inputs = LinearCrossEntropyInputs;
using Options = LinearCrossEntropyOptions;
using Outputs = LinearCrossEntropyOutputs;

constexpr const char* kForward = "linear_cross_entropy_forward";

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
    const bool tiles = head.in_tiles();
    lse = column(tiles || bool(out.lse));
    largest = column(tiles);
    sum = column(tiles);
    at_label = column(tiles);
    before = column(tiles && out.token_accuracy);
    dot = column(tiles && o.loss.label_smoothing > 0.0F);
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
  Tensor largest, sum, at_label, before, dot;  // where logits come in tiles
};

/// The losses of rows `first` and on, with nothing said of their logits.
CrossEntropyForward losses(const Forward& f, std::int64_t first) {
  return {.row_weight = column_view(f.token_weights, first),
          .divisor = scalar(f.divisor),
          .loss = column_view(f.loss, first),
          .z_loss = column_view(f.z_loss, first),
          .correct = column_view(f.correct, first),
          .lse = column_view(f.lse, first)};
}

void forward_in_chunks(const Context& ctx, Forward& f, const Inputs& in, const Options& o,
                       bool with_gradient) {
  f.head.for_each_chunk([&](const LinearHead::Part& chunk) {
    CrossEntropyForward p = losses(f, chunk.first);
    p.in = rows_of(chunk, in, o.loss);
    if (with_gradient) p.dlogits = chunk.dlogits;
    launch(ctx, kForward, p);
  });
}

void forward_in_tiles(const Context& ctx, Forward& f, const Inputs& in, const Options& o) {
  const CrossEntropyStatistics statistics{.largest = column_view(f.largest),
                                          .sum = column_view(f.sum),
                                          .at_label = column_view(f.at_label),
                                          .before = column_view(f.before),
                                          .dot = column_view(f.dot)};
  f.head.for_each_tile([&](const LinearHead::Part& tile) {
    const CrossEntropyTile p{
        .in = rows_of(tile, in, o.loss), .tile = tile_of(tile), .statistics = statistics};
    launch(ctx, kForward, p);
  });
  CrossEntropyFinish finish{.results = losses(f, 0), .statistics = statistics};
  finish.results.in = rows_of({.rows = f.head.counted(), .labels = f.head.labels()}, in, o.loss);
  launch(ctx, kForward, finish);
  f.head.for_each_tile_gradient([&](const LinearHead::Part& tile) {
    const CrossEntropyBackward p{.in = rows_of(tile, in, o.loss),
                                 .tile = tile_of(tile),
                                 .dloss = column_view(f.token_weights),
                                 .lse = column_view(f.lse),
                                 .divisor = scalar(f.divisor),
                                 .dlogits = tile.dlogits};
    launch(ctx, kForward, p);
  });
}

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

  if (f.head.in_tiles())
    forward_in_tiles(ctx, f, in, o);
  else
    forward_in_chunks(ctx, f, in, o, out.dx || out.dweight || out.dbias);

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

}  // namespace tigon
