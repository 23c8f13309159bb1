// Gated activations: the loops of swiglu and geglu, and the functions of the normal and the
// logistic distribution that activations are made of. Included once per instruction set.
#if defined(TIGON_CPU_GLU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIGON_CPU_GLU_INL_H_
#undef TIGON_CPU_GLU_INL_H_
#else
#define TIGON_CPU_GLU_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cpu/scratch.h"
#include "cpu/simd-inl.h"
#include "kernels/glu.h"

HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {

/// p = 1 / (1 + exp(-x)); q = 1 - p. Neither cancels.
HWY_INLINE Vec logistic(Vec x, Vec& q) {
  const FloatTag d;
  const Vec one = hn::Set(d, 1.0F);
  const Vec e = exp(hn::Neg(hn::Abs(x)));
  const Vec large = hn::Div(one, hn::Add(one, e));
  const Vec small = hn::Mul(e, large);
  const auto negative = hn::Lt(x, hn::Zero(d));
  q = hn::IfThenElse(negative, large, small);
  return hn::IfThenElse(negative, small, large);
}

/// The standard normal's cdf and density. With t = |x|, cdf(-t) = exp(-t^2 / 2) E(t), where E is
/// smooth and never cancels: a polynomial in (t - 3) / (t + 3), fitted for the least relative
/// error on [0, 14.5] (9.3e-9), beyond which the cdf is below float32. Both tails stay accurate
/// to a few units in the last place, which 1 + erf(x) cannot be.
HWY_INLINE Vec normal_cdf(Vec x, Vec& density) {
  constexpr float kCoefficients[] = {
      5.31614825e-05F, 1.15013850e-04F,  -3.39012354e-04F, -9.83288456e-04F, 2.90438723e-03F,
      6.13194237e-03F, -4.62132636e-02F, 1.23225041e-01F,  -2.06402620e-01F, 1.21513948e-01F};
  const FloatTag d;
  const Vec t = hn::Min(hn::Abs(x), hn::Set(d, 14.5F));
  const Vec three = hn::Set(d, 3.0F);
  const Vec z = hn::Div(hn::Sub(t, three), hn::Add(t, three));
  Vec tail = hn::Set(d, kCoefficients[0]);
  for (int i = 1; i < 10; ++i) tail = hn::MulAdd(tail, z, hn::Set(d, kCoefficients[i]));
  // t^2 loses up to 1e-5 of the exponential to its own rounding; the rest corrects for it.
  const Vec square = hn::Mul(t, t);
  const Vec half = hn::Set(d, 0.5F);
  const Vec rest = hn::Mul(half, hn::MulSub(t, t, square));
  Vec e = exp(hn::Neg(hn::Mul(half, square)));
  e = hn::NegMulAdd(e, rest, e);
  tail = hn::Mul(tail, e);
  density = hn::Mul(hn::Set(d, 0.398942280F), e);  // 1 / sqrt(2 pi)
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.0F), tail));
}

/// Columns that are worked on at once: what passes through scratch stays in L1.
inline constexpr std::int64_t kGluChunk = 2048;

/// Calls body(scratch, row, first column, columns) on pieces of [rows, cols], in parallel.
template <class Body>
void for_each_chunk(const Context& ctx, std::int64_t rows, std::int64_t cols, Body body) {
  const std::int64_t chunks = (cols + kGluChunk - 1) / kGluChunk;
  const std::int64_t grain = row_grain(std::min(cols, kGluChunk));
  ctx.parallel_for(rows * chunks, grain, [&](std::int64_t begin, std::int64_t end) {
    const Scratch scratch(5, std::min(cols, kGluChunk) + 1);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / chunks;
      const std::int64_t col = (i - row * chunks) * kGluChunk;
      body(scratch, row, col, std::min(kGluChunk, cols - col));
    }
  });
}

HWY_INLINE std::int64_t element(const RowView& view, const RowSpace& rows, std::int64_t row,
                                std::int64_t col) {
  return view.offset(rows, row) + col * view.col_stride;
}

/// An activation has value(x) = act(x), and slope(x, y) = act'(x), which also gives y = act(x).
template <class Act>
void glu_forward(const Context& ctx, const GluForward& p, Act act) {
  const auto body = [&]<class T>(const Scratch& scratch, std::int64_t row, std::int64_t col,
                                 std::int64_t n) {
    const T* gate = read<T>(p.gate, element(p.gate, p.rows, row, col), n, scratch[0]);
    const T* up = read<T>(p.up, element(p.up, p.rows, row, col), n, scratch[1]);
    const std::int64_t at = element(p.y, p.rows, row, col);
    T* y = write_buffer<T>(p.y, at, scratch[2]);
    map(n, y, [&](Vec g, Vec u) { return hn::Mul(act.value(g), u); }, gate, up);
    write(y, p.y, at, n);
  };
  dispatch({&p.gate, &p.up, &p.y}, [&]<class T>() {
    for_each_chunk(ctx, p.rows.count, p.cols,
                   [&](const Scratch& scratch, std::int64_t row, std::int64_t col, std::int64_t n) {
                     body.template operator()<T>(scratch, row, col, n);
                   });
  });
}

template <class Act>
void glu_backward(const Context& ctx, const GluBackward& p, Act act) {
  if (!p.dgate && !p.dup) return;
  const auto body = [&]<class T>(const Scratch& scratch, std::int64_t row, std::int64_t col,
                                 std::int64_t n) {
    const T* dy = read<T>(p.dy, element(p.dy, p.rows, row, col), n, scratch[0]);
    const T* gate = read<T>(p.gate, element(p.gate, p.rows, row, col), n, scratch[1]);
    const T* up = read<T>(p.up, element(p.up, p.rows, row, col), n, scratch[2]);
    // A gradient that nobody wants stays in scratch.
    const auto buffer = [&](const RowView& view, float* own) {
      if (!view) return reinterpret_cast<T*>(own);
      return write_buffer<T>(view, element(view, p.rows, row, col), own);
    };
    T* dgate = buffer(p.dgate, scratch[3]);
    T* dup = buffer(p.dup, scratch[4]);
    map_pair(
        n, dgate, dup,
        [&](Vec d, Vec g, Vec u) {
          Vec y;
          const Vec slope = act.slope(g, y);
          return std::pair(hn::Mul(hn::Mul(d, u), slope), hn::Mul(d, y));
        },
        dy, gate, up);
    if (p.dgate) write(dgate, p.dgate, element(p.dgate, p.rows, row, col), n);
    if (p.dup) write(dup, p.dup, element(p.dup, p.rows, row, col), n);
  };
  dispatch({&p.dy, &p.gate, &p.up, &p.dgate, &p.dup}, [&]<class T>() {
    for_each_chunk(ctx, p.rows.count, p.cols,
                   [&](const Scratch& scratch, std::int64_t row, std::int64_t col, std::int64_t n) {
                     body.template operator()<T>(scratch, row, col, n);
                   });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tigon
HWY_AFTER_NAMESPACE();

#endif  // TIGON_CPU_GLU_INL_H_
