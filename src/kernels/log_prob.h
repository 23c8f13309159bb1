#pragma once

#include <cstdint>

#include "base/rows.h"
#include "kernels/cross_entropy.h"

namespace tigon {

/// Per row of logits: x = map(logits), p = softmax(x). Ignored rows are 0 in every output.
struct LogProbForward {
  RowSpace rows;
  std::int64_t cols = 0;
  RowView logits;  // [rows, cols]
  RowView labels;  // [rows, 1] int64
  LogitMap map;
  std::int64_t ignore_index = 0;
  // Outputs, [rows, 1] float32 each, or empty.
  RowView lse;
  RowView log_prob;          // x[label] - lse
  RowView entropy;           // - sum p log p
  RowView log_sum_sq_probs;  // log sum p^2
  RowView mean_logit;        // sum x / cols
  RowView is_top1;           // 1 where the label is the first of the largest x, else 0
};

/// The gradient of sum over outputs of d(output) * output with respect to the logits.
struct LogProbBackward {
  RowSpace rows;
  std::int64_t cols = 0;
  RowView logits;  // [rows, cols]
  RowView labels;  // [rows, 1] int64
  LogitMap map;
  std::int64_t ignore_index = 0;
  // [rows, 1] float32, saved by forward: lse always, the others where their gradient is there.
  RowView lse;
  RowView entropy;
  RowView log_sum_sq_probs;
  // [rows, 1] float32, or empty.
  RowView dlog_prob;
  RowView dentropy;
  RowView dlog_sum_sq_probs;
  RowView dmean_logit;
  RowView dlogits;  // [rows, cols] of logits' type; may be the logits
};

}  // namespace tigon
