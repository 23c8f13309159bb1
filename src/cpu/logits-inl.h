// What the losses over a vocabulary read of their rows. Included once per instruction set.
#if defined(TIGON_CPU_LOGITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIGON_CPU_LOGITS_INL_H_
#undef TIGON_CPU_LOGITS_INL_H_
#else
#define TIGON_CPU_LOGITS_INL_H_
#endif

#include <cstdint>

#include "cpu/simd-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "kernels/cross_entropy.h"

HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {

inline float* at_row(const RowView& view, const RowSpace& rows, std::int64_t row) {
  return static_cast<float*>(view.data) + view.offset(rows, row);
}

/// x = map(z) of n logits. Returns z itself where that is x.
HWY_INLINE const float* map_logits(const LogitMap& m, std::int64_t n, const float* z, float* x) {
  const FloatTag d;
  const Vec outer = hn::Set(d, m.outer);
  const Vec inner = hn::Set(d, m.inner);
  if (m.inner != 0.0F)
    map(n, x, [&](Vec v) { return hn::Mul(hn::Tanh(d, hn::Mul(v, inner)), outer); }, z);
  else if (m.outer != 1.0F)
    map(n, x, [&](Vec v) { return hn::Mul(v, outer); }, z);
  else
    return z;
  return x;
}

}  // namespace HWY_NAMESPACE
}  // namespace tigon
HWY_AFTER_NAMESPACE();

#endif  // TIGON_CPU_LOGITS_INL_H_
