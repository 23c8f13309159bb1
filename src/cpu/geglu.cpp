#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/geglu.cpp"
#include "kernels/geglu.h"

#include "cpu/foreach_target.h"  // before glu-inl.h
#include "cpu/glu-inl.h"
#include "cpu/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {
namespace {

struct GeluErf {
  HWY_INLINE Vec value(Vec x) const {
    Vec unused;
    return hn::Mul(x, normal_cdf(x, unused));
  }
  HWY_INLINE Vec slope(Vec x, Vec& y) const {
    Vec density;
    const Vec cdf = normal_cdf(x, density);
    y = hn::Mul(x, cdf);
    return hn::MulAdd(x, density, cdf);
  }
};

// (1 + tanh(u)) / 2 is the logistic function of 2 u, which does not cancel for negative u.
struct GeluTanh {
  static constexpr float kScale = 1.59576912F;  // 2 sqrt(2 / pi)
  static constexpr float kCubic = 0.044715F;

  HWY_INLINE Vec value(Vec x) const {
    Vec y;
    slope(x, y);
    return y;
  }
  HWY_INLINE Vec slope(Vec x, Vec& y) const {
    const FloatTag d;
    // Far out the logistic function is 0 or 1 to the last bit: what is cut off is only overflow.
    const Vec c = hn::Min(hn::Max(x, hn::Set(d, -32.0F)), hn::Set(d, 32.0F));
    const Vec square = hn::Mul(c, c);
    const Vec scale = hn::Set(d, kScale);
    const Vec one = hn::Set(d, 1.0F);
    Vec q;
    const Vec u = hn::Mul(hn::Mul(scale, c), hn::MulAdd(hn::Set(d, kCubic), square, one));
    const Vec p = logistic(u, q);
    y = hn::Mul(x, p);
    const Vec inner = hn::Mul(scale, hn::MulAdd(hn::Set(d, 3.0F * kCubic), square, one));
    return hn::MulAdd(hn::Mul(y, q), inner, p);
  }
};

void forward(const Context& ctx, const GegluForward& p) {
  if (p.gelu == Gelu::tanh) return glu_forward(ctx, p, GeluTanh());
  glu_forward(ctx, p, GeluErf());
}

void backward(const Context& ctx, const GegluBackward& p) {
  if (p.gelu == Gelu::tanh) return glu_backward(ctx, p, GeluTanh());
  glu_backward(ctx, p, GeluErf());
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tigon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon {
namespace {

TIGON_CPU_KERNEL(GegluForward, forward);
TIGON_CPU_KERNEL(GegluBackward, backward);

}  // namespace
}  // namespace tigon
#endif  // HWY_ONCE
