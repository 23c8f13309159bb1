// What the losses over a vocabulary read of their rows. Included once per instruction set.
#if defined(TIGON_CPU_LOGITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIGON_CPU_LOGITS_INL_H_
#undef TIGON_CPU_LOGITS_INL_H_
#else
#define TIGON_CPU_LOGITS_INL_H_
#endif

#include <cstdint>

#include "cpu/scratch.h"
#include "cpu/simd-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "kernels/cross_entropy.h"

HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {

inline float* at_row(const RowView& view, const RowSpace& rows, std::int64_t row) {
  return static_cast<float*>(view.data) + view.offset(rows, row);
}

/// Class weights as float32, or ones, and their sum.
class ClassWeights {
 public:
  ClassWeights(const RowView& weight, std::int64_t cols) : scratch_(1, weight ? cols : 1) {
    total_ = static_cast<float>(cols);
    if (!weight) return;
    values_ = read(weight, 0, cols, scratch_[0]);
    total_ = sum(cols, [](Vec w) { return w; }, values_);
  }

  /// From column `first` on; null: ones.
  const float* values(std::int64_t first = 0) const {
    return values_ == nullptr ? nullptr : values_ + first;
  }
  float total() const { return total_; }
  float operator[](std::int64_t v) const { return values_ == nullptr ? 1.0F : values_[v]; }

 private:
  Scratch scratch_;
  const float* values_ = nullptr;
  float total_;
};

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
