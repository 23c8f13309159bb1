#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/log_prob.cpp"
#include "kernels/log_prob.h"

#include <algorithm>
#include <cmath>

#include "cpu/foreach_target.h"  // before simd-inl.h
#include "cpu/kernel.h"
#include "cpu/logits-inl.h"
#include "cpu/scratch.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {
namespace {

/// x of one row, as float32; in `scratch`, or the logits themselves.
template <class Params>
const float* mapped_row(const Params& p, std::int64_t row, float* scratch) {
  const float* z = read(p.logits, p.logits.offset(p.rows, row), p.cols, scratch);
  return map_logits(p.map, p.cols, z, scratch);
}

void forward(const Context& ctx, const LogProbForward& p) {
  const std::int64_t n = p.cols;
  const auto put = [&](const RowView& view, std::int64_t row, float v) {
    if (view) *at_row(view, p.rows, row) = v;
  };
  ctx.parallel_for(p.rows.count, row_grain(n), [&](std::int64_t begin, std::int64_t end) {
    const FloatTag d;
    const Scratch scratch(2, n);
    float* e = scratch[1];
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t label = load_integer(p.labels, p.labels.offset(p.rows, row));
      if (label == p.ignore_index) {
        for (const RowView* v :
             {&p.lse, &p.log_prob, &p.entropy, &p.log_sum_sq_probs, &p.mean_logit, &p.is_top1})
          put(*v, row, 0.0F);
        continue;
      }
      const float* x = mapped_row(p, row, scratch[0]);
      const float largest = max(n, x);
      const Vec shift = hn::Set(d, largest);
      map(n, e, [&](Vec v) { return exp(hn::Sub(v, shift)); }, x);
      const float total = sum(n, [](Vec v) { return v; }, e);
      const float log_total = std::log(total);
      put(p.lse, row, largest + log_total);
      put(p.log_prob, row, x[label] - largest - log_total);
      if (p.entropy) {
        // - sum p log p with log p = x - largest - log_total; a probability of 0 adds nothing.
        const Vec zero = hn::Zero(d);
        const auto weighted = [&](Vec v, Vec w) {
          return hn::IfThenElse(hn::Eq(w, zero), zero, hn::Mul(w, hn::Sub(v, shift)));
        };
        put(p.entropy, row, log_total - sum(n, weighted, x, e) / total);
      }
      if (p.log_sum_sq_probs) {
        const float squares = sum(n, [](Vec w) { return hn::Mul(w, w); }, e);
        put(p.log_sum_sq_probs, row, std::log(squares) - 2.0F * log_total);
      }
      if (p.mean_logit)
        put(p.mean_logit, row, sum(n, [](Vec v) { return v; }, x) / static_cast<float>(n));
      if (p.is_top1) {
        const bool first = x[label] == largest && (label == 0 || max(label, x) < largest);
        put(p.is_top1, row, first ? 1.0F : 0.0F);
      }
    }
  });
}

/// With l = log p and the incoming gradients a, h, s, m of log_prob, entropy, log_sum_sq_probs and
/// mean_logit:
///
///   dx = a * [v = label] + m / V - p * (a + h * (l + entropy) + 2 s - 2 s * p / sum p^2)
void backward(const Context& ctx, const LogProbBackward& p) {
  const std::int64_t n = p.cols;
  const auto get = [&](const RowView& view, std::int64_t row) {
    return view ? *at_row(view, p.rows, row) : 0.0F;
  };
  ctx.parallel_for(p.rows.count, row_grain(n), [&](std::int64_t begin, std::int64_t end) {
    const FloatTag d;
    const Scratch scratch(2, n);
    float* g = scratch[1];
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = p.dlogits.offset(p.rows, row);
      const std::int64_t label = load_integer(p.labels, p.labels.offset(p.rows, row));
      if (label == p.ignore_index) {
        std::fill(g, g + n, 0.0F);
        write(g, p.dlogits, at, n);
        continue;
      }
      const float* x = mapped_row(p, row, scratch[0]);
      const float a = get(p.dlog_prob, row);
      const float s = get(p.dlog_sum_sq_probs, row);
      const Vec entropy = hn::Set(d, get(p.entropy, row));
      const Vec dentropy = hn::Set(d, get(p.dentropy, row));
      const Vec constant = hn::Set(d, a + 2.0F * s);
      const Vec squares = hn::Set(d, 2.0F * s * std::exp(-get(p.log_sum_sq_probs, row)));
      const Vec mean = hn::Set(d, get(p.dmean_logit, row) / static_cast<float>(n));
      const Vec lse = hn::Set(d, get(p.lse, row));
      const Vec zero = hn::Zero(d);
      map(
          n, g,
          [&](Vec v) {
            const Vec log_p = hn::Sub(v, lse);
            const Vec q = exp(log_p);
            Vec f = hn::MulAdd(dentropy, hn::Add(log_p, entropy), constant);
            f = hn::NegMulAdd(squares, q, f);
            const Vec taken = hn::IfThenElse(hn::Eq(q, zero), zero, hn::Mul(q, f));
            return hn::Sub(mean, taken);
          },
          x);
      g[label] += a;
      const Vec slope = hn::Set(d, p.map.slope());
      if (p.map.inner == 0.0F) {
        map(n, g, [&](Vec v) { return hn::Mul(v, slope); }, g);
      } else {
        const Vec one = hn::Set(d, 1.0F);
        const Vec down = hn::Set(d, 1.0F / p.map.outer);
        const auto through_cap = [&](Vec v, Vec c) {
          const Vec t = hn::Mul(c, down);
          return hn::Mul(hn::Mul(v, slope), hn::NegMulAdd(t, t, one));
        };
        map(n, g, through_cap, g, x);
      }
      write(g, p.dlogits, at, n);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tigon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon {
namespace {

TIGON_CPU_KERNEL(LogProbForward, forward);
TIGON_CPU_KERNEL(LogProbBackward, backward);

}  // namespace
}  // namespace tigon
#endif  // HWY_ONCE
