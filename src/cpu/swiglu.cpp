#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/swiglu.cpp"
#include "kernels/swiglu.h"

#include "cpu/foreach_target.h"  // before glu-inl.h
#include "cpu/glu-inl.h"
#include "cpu/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {
namespace {

struct Silu {
  HWY_INLINE Vec value(Vec x) const {
    Vec unused;
    return hn::Mul(x, logistic(x, unused));
  }
  HWY_INLINE Vec slope(Vec x, Vec& y) const {
    Vec q;
    const Vec p = logistic(x, q);
    y = hn::Mul(x, p);
    return hn::MulAdd(y, q, p);
  }
};

void forward(const Context& ctx, const SwigluForward& p) { glu_forward(ctx, p, Silu()); }
void backward(const Context& ctx, const SwigluBackward& p) { glu_backward(ctx, p, Silu()); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tigon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon {
namespace {

TIGON_CPU_KERNEL(SwigluForward, forward);
TIGON_CPU_KERNEL(SwigluBackward, backward);

}  // namespace
}  // namespace tigon
#endif  // HWY_ONCE
