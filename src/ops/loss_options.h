#pragma once

#include "base/fail.h"
#include "kernels/cross_entropy.h"
#include "tigon/ops/cross_entropy.h"

// What losses over a vocabulary share: ranges of their options, and how logits are mapped.
namespace tigon {

// Conditions are written so that NaN fails too.
inline void check_softcap(const char* op, float softcap) {
  if (!(softcap >= 0.0F)) fail(op, ": softcap must be positive or absent, got ", softcap);
}

inline void check_options(const char* op, const CrossEntropyOptions& o) {
  if (!(o.label_smoothing >= 0.0F && o.label_smoothing <= 1.0F))
    fail(op, ": label_smoothing must be in [0, 1], got ", o.label_smoothing);
  if (!(o.z_loss >= 0.0F)) fail(op, ": z_loss must be at least 0, got ", o.z_loss);
  check_softcap(op, o.softcap);
}

inline LogitMap logit_map(float scale, float softcap, float temperature = 1.0F) {
  return softcap > 0.0F ? LogitMap{softcap / temperature, scale / softcap}
                        : LogitMap{scale / temperature, 0.0F};
}

}  // namespace tigon
