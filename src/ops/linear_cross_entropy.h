#pragma once

#include "base/check.h"
#include "kernels/cross_entropy.h"
#include "ops/linear_head.h"
#include "ops/loss.h"
#include "tigon/ops/linear_cross_entropy.h"

// What both directions of linear_cross_entropy share.
namespace tigon {

inline LinearHead::Arguments head_arguments(const LinearCrossEntropyInputs& in,
                                            const LinearCrossEntropyOptions& o,
                                            const LinearCrossEntropyGradients& out) {
  return {.x = in.x,
          .weight = in.weight,
          .bias = in.bias,
          .labels = in.labels,
          .ignore_index = o.loss.ignore_index,
          .chunk_rows = o.chunk_rows,
          .sum_in_float32 = o.sum_in_float32,
          .low_memory = o.memory == HeadMemory::low,
          .dx = out.dx,
          .dweight = out.dweight,
          .dbias = out.dbias};
}

/// What both directions check.
inline void check(const Context& ctx, const char* op, const LinearCrossEntropyInputs& in,
                  const LinearCrossEntropyOptions& o, const LinearCrossEntropyGradients& out) {
  LinearHead::check(ctx, op, head_arguments(in, o, out));
  check_options(op, o.loss);
  if (in.class_weight) Checker(op, ctx).weight(in.class_weight, "class_weight", in.weight.size(0));
}

inline CrossEntropyRows rows_of(const LinearHead::Part& part, const LinearCrossEntropyInputs& in,
                                const CrossEntropyOptions& o) {
  CrossEntropyRows p = cross_entropy_rows(o, in.weight.size(0), in.class_weight);
  p.rows = part.rows;
  p.logits = part.logits;
  p.labels = part.labels;
  return p;
}

inline ColumnTile tile_of(const LinearHead::Part& tile) {
  return {.first = tile.first, .cols = tile.cols};
}

}  // namespace tigon
