#pragma once

#include <cmath>
#include <cstdint>

#include "base/check.h"
#include "base/fail.h"
#include "base/rows.h"
#include "kernels/cross_entropy.h"
#include "tigon/ops/cross_entropy.h"

// What the losses over a vocabulary share: their options, their results, and how these are summed.
namespace tigon {

inline float* scalar(const Tensor& t) { return static_cast<float*>(t.data); }

inline LogitMap logit_map(float scale, float softcap, float temperature = 1.0F) {
  const float inner = softcap > 0.0F ? scale / softcap : 0.0F;
  if (inner == 0.0F) return {scale / temperature, 0.0F};  // a scale of 0, or a cap out of reach
  return {softcap / temperature, inner};
}

// Conditions are written so that NaN fails too.
inline void check_logit_map(const char* op, float scale, float softcap, float temperature = 1.0F) {
  if (!(softcap >= 0.0F)) fail(op, ": softcap must be positive or absent, got ", softcap);
  if (!(temperature > 0.0F)) fail(op, ": temperature must be positive, got ", temperature);
  const LogitMap map = logit_map(scale, softcap, temperature);
  if (!std::isfinite(map.outer) || !std::isfinite(map.inner))
    fail(op, ": finite logits must stay finite, but logit_scale is ", scale, ", softcap ", softcap,
         " and temperature ", temperature);
}

inline void check_options(const char* op, const CrossEntropyOptions& o) {
  if (!(o.label_smoothing >= 0.0F && o.label_smoothing <= 1.0F))
    fail(op, ": label_smoothing must be in [0, 1], got ", o.label_smoothing);
  if (!(o.z_loss >= 0.0F)) fail(op, ": z_loss must be at least 0, got ", o.z_loss);
  check_logit_map(op, o.logit_scale, o.softcap);
}

/// The seam of both directions, but for its views of rows.
inline CrossEntropyRows cross_entropy_rows(const CrossEntropyOptions& o, std::int64_t classes,
                                           const Tensor& class_weight) {
  return {.cols = classes,
          .weight = fold_vector(class_weight),
          .map = logit_map(o.logit_scale, o.softcap),
          .ignore_index = o.ignore_index,
          .label_smoothing = o.label_smoothing,
          .z_loss = o.z_loss};
}

/// Outputs has loss, z_loss, token_accuracy, lse and divisor.
template <class Outputs>
void check_results(const Checker& check, const char* op, const Outputs& out, std::int64_t rows,
                   Reduction reduction) {
  const std::int64_t size = reduction == Reduction::none ? rows : 1;
  if (!out.loss) fail(op, ": loss is missing");
  check.vector(out.loss, "loss", DType::float32, size);
  if (out.z_loss) check.vector(out.z_loss, "z_loss", DType::float32, size);
  if (out.token_accuracy) check.vector(out.token_accuracy, "token_accuracy", DType::float32, size);
  if (out.lse) check.vector(out.lse, "lse", DType::float32, rows);
  if (!out.divisor) return;
  if (reduction != Reduction::mean) fail(op, ": divisor is wanted but reduction is not mean");
  check.scalar(out.divisor, "divisor");
}

/// The part of a reduction that counts: what the mean divides by, before any loss is there.
inline CrossEntropyReduce counting(CrossEntropyReduce sums, const Tensor& divisor) {
  sums.loss = sums.z_loss = sums.correct = {};
  sums.divisor = scalar(divisor);
  return sums;
}

/// The rest of it: the results, divided by what was counted.
template <class Outputs>
CrossEntropyReduce totalling(CrossEntropyReduce sums, const Outputs& out, const Tensor& divisor) {
  sums.given_divisor = scalar(divisor);
  sums.total_loss = scalar(out.loss);
  sums.total_z_loss = scalar(out.z_loss);
  sums.token_accuracy = scalar(out.token_accuracy);
  return sums;
}

}  // namespace tigon
