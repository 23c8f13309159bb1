#include "base/check.h"
#include "kernels/registry.h"
#include "ops/linear_cross_entropy.h"

namespace tigon {
namespace {

using Inputs = LinearCrossEntropyInputs;
using Options = LinearCrossEntropyOptions;
using Gradients = LinearCrossEntropyGradients;

constexpr const char* kBackward = "linear_cross_entropy_backward";

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
  const auto gradient = [&](const LinearHead::Part& part, std::int64_t row, ColumnTile tile) {
    const CrossEntropyBackward p{.in = rows_of(part, in, o.loss),
                                 .tile = tile,
                                 .dloss = column_view(b.dloss, row),
                                 .lse = column_view(b.lse, row),
                                 .divisor = scalar(divisor),
                                 .dlogits = part.dlogits};
    launch(ctx, kBackward, p);
  };
  if (b.head.in_tiles())
    b.head.for_each_tile_gradient(
        [&](const LinearHead::Part& tile) { gradient(tile, 0, tile_of(tile)); });
  else
    b.head.for_each_chunk([&](const LinearHead::Part& chunk) {
      gradient(chunk, chunk.first, {.first = 0, .cols = chunk.cols});
    });
}

std::size_t linear_cross_entropy_backward_workspace(const Context& ctx, const Inputs& in,
                                                    const Options& o, const Gradients& out) {
  check(ctx, kBackward, in, o, out);
  return Backward(without_workspace(ctx), in, o, out).arena.bytes();
}

}  // namespace tigon
