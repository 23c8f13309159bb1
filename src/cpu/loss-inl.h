// What the kernels of cross_entropy have in common. Included once per instruction set.
#if defined(TIGON_CPU_LOSS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIGON_CPU_LOSS_INL_H_
#undef TIGON_CPU_LOSS_INL_H_
#else
#define TIGON_CPU_LOSS_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "cpu/logits-inl.h"
#include "cpu/simd-inl.h"
#include "kernels/cross_entropy.h"

HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE float value(const T* p) {
  return hn::GetLane(load_part(p, 1));
}

/// The n x of one row: the logits themselves, or mapped into scratch (T is float then).
template <class T>
HWY_INLINE const T* mapped_row(const CrossEntropyRows& in, std::int64_t row, std::int64_t n,
                               float* scratch) {
  const T* z = read<T>(in.logits, in.logits.offset(in.rows, row), n, scratch);
  if constexpr (std::is_same_v<T, float>) return map_logits(in.map, n, z, scratch);
  return z;
}

/// Sum of w * x over n columns from `first` on.
template <class T>
HWY_INLINE float weighted_sum(std::int64_t n, const T* x, const ClassWeights& weights,
                              std::int64_t first) {
  if (weights.values(first) == nullptr) return sum(n, [](Vec v) { return v; }, x);
  return sum(n, [](Vec v, Vec w) { return hn::Mul(v, w); }, x, weights.values(first));
}

inline void put(const CrossEntropyForward& p, const RowView& view, std::int64_t row, float v) {
  if (view) *at_row(view, p.in.rows, row) = v;
}

inline void write_no_loss(const CrossEntropyForward& p, std::int64_t row) {
  for (const RowView* v : {&p.loss, &p.z_loss, &p.correct, &p.lse}) put(p, *v, row, 0.0F);
}

struct RowLoss {
  float at_label;  // x[label]
  float largest;
  float log_sum;  // of exp(x - largest)
  float dot;      // sum of w * x, with label smoothing
  bool first;     // the label is the first of the largest

  void write(const CrossEntropyForward& p, const ClassWeights& weights, std::int64_t row,
             std::int64_t label) const {
    const CrossEntropyRows& in = p.in;
    const float lse = largest + log_sum;
    const float row_weight = p.row_weight ? *at_row(p.row_weight, in.rows, row) : 1.0F;
    // lse - x[label] without the cancellation of adding the largest first.
    float loss = (1.0F - in.label_smoothing) * weights[label] * (largest - at_label + log_sum);
    if (in.label_smoothing > 0.0F)
      loss += in.label_smoothing / static_cast<float>(in.cols) * (weights.total() * lse - dot);
    const float z_loss = in.z_loss * lse * lse;
    put(p, p.loss, row, row_weight * (loss + z_loss));
    put(p, p.z_loss, row, row_weight * z_loss);
    put(p, p.correct, row, first ? 1.0F : 0.0F);
    put(p, p.lse, row, lse);
  }
};

template <class F>
HWY_INLINE void dispatch_logits(const CrossEntropyRows& in, F&& f) {
  const bool as_stored = in.map.outer == 1.0F && in.map.inner == 0.0F;
  if (as_stored) return dispatch({&in.logits}, f);
  f.template operator()<float>();
}

}  // namespace HWY_NAMESPACE
}  // namespace tigon
HWY_AFTER_NAMESPACE();

#endif  // TIGON_CPU_LOSS_INL_H_
