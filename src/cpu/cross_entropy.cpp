#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/cross_entropy.cpp"
#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "cpu/foreach_target.h"  // before simd-inl.h
#include "cpu/kernel.h"
#include "cpu/loss-inl.h"
#include "cpu/scratch.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {
namespace {

/// Rows are worked on in pieces that stay in the first-level cache from one map to the next.
constexpr std::int64_t kPiece = 2048;

/// e = exp(x - shift), and its sum.
template <class T>
HWY_INLINE float exponentials(std::int64_t n, const T* x, float shift, float* e) {
  const Vec s = hn::Set(FloatTag(), shift);
  float total = 0.0F;
  for (std::int64_t i = 0; i < n; i += kPiece) {
    const std::int64_t m = std::min(kPiece, n - i);
    map(m, e + i, [&](Vec v) { return exp(hn::Sub(v, s)); }, x + i);
    total += sum(m, [](Vec v) { return v; }, e + i);
  }
  return total;
}

/// dx[v] = factor * (softmax * e[v] - smooth * w[v] - target * [v = label]); the factor comes last,
/// for what cancels inside to cancel exactly.
struct Gradient {
  float softmax;
  float smooth;
  float target;
  float factor;
};

/// Writes dz of a tile's columns, from dx; e is overwritten.
template <class T>
HWY_INLINE void write_gradient(const CrossEntropyRows& in, const ColumnTile& tile,
                               const ClassWeights& weights, const Gradient& g, std::int64_t label,
                               const T* x, float* e, const RowView& dlogits, std::int64_t row) {
  const FloatTag d;
  const Vec softmax = hn::Set(d, g.softmax);
  const Vec smooth = hn::Set(d, g.smooth);
  const Vec factor = hn::Set(d, g.factor);
  const Vec one = hn::Set(d, 1.0F);
  const Vec down = hn::Set(d, 1.0F / in.map.outer);
  const float* w = g.smooth == 0.0F ? nullptr : weights.values(tile.first);
  const std::int64_t place = label - tile.first;  // perhaps in another tile
  const bool has_label = place >= 0 && place < tile.cols;
  const float at_label =
      has_label ? g.factor * (g.softmax * e[place] - g.smooth * weights[label] - g.target) : 0.0F;
  const std::int64_t at = dlogits.offset(in.rows, row);

  for (std::int64_t i = 0; i < tile.cols; i += kPiece) {
    const std::int64_t m = std::min(kPiece, tile.cols - i);
    float* piece = e + i;
    if (w != nullptr)
      map(
          m, piece,
          [&](Vec p, Vec v) {
            return hn::Mul(factor, hn::NegMulAdd(smooth, v, hn::Mul(softmax, p)));
          },
          piece, w + i);
    else
      map(m, piece, [&](Vec p) { return hn::Mul(factor, hn::MulSub(softmax, p, smooth)); }, piece);
    if (has_label && place >= i && place < i + m) e[place] = at_label;
    if (in.map.inner != 0.0F) {
      const auto slope = [&](Vec v, Vec c) {
        const Vec t = hn::Mul(c, down);
        return hn::Mul(v, hn::NegMulAdd(t, t, one));
      };
      map(m, piece, slope, piece, x + i);
    }
    write(piece, dlogits, at + i * dlogits.col_stride, m);
  }
}

void write_zeros(const CrossEntropyRows& in, const ColumnTile& tile, const RowView& dlogits,
                 std::int64_t row, float* e) {
  std::fill(e, e + tile.cols, 0.0F);
  write(e, dlogits, dlogits.offset(in.rows, row), tile.cols);
}

/// The coefficients of one row whose gradient is multiplied by `factor`, but for the sum of e.
Gradient coefficients(const CrossEntropyRows& in, const ClassWeights& weights, std::int64_t label,
                      float lse, float factor) {
  const float target = (1.0F - in.label_smoothing) * weights[label];
  const float smooth = in.label_smoothing / static_cast<float>(in.cols);
  const float mass = target + smooth * weights.total();
  return {mass + 2.0F * in.z_loss * lse, smooth, target, factor * in.map.slope()};
}

template <class T>
void forward_rows(const Context& ctx, const CrossEntropyForward& p) {
  const CrossEntropyRows& in = p.in;
  const std::int64_t n = in.cols;
  const ClassWeights weights(in.weight, n);
  const float inverse = p.divisor == nullptr ? 1.0F : 1.0F / *p.divisor;

  ctx.parallel_for(in.rows.count, row_grain(n), [&](std::int64_t begin, std::int64_t end) {
    const Scratch scratch(2, n);
    float* e = scratch[1];
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t label = load_integer(in.labels, in.labels.offset(in.rows, row));
      if (label == in.ignore_index) {
        write_no_loss(p, row);
        if (p.dlogits) write_zeros(in, {0, n}, p.dlogits, row, e);
        continue;
      }
      const T* x = mapped_row<T>(in, row, n, scratch[0]);
      const float largest = max(n, x);
      const float log_sum = std::log(exponentials(n, x, largest, e));
      const float lse = largest + log_sum;
      const float at_label = value(x + label);
      const bool first =
          p.correct && at_label == largest && (label == 0 || max(label, x) < largest);
      const RowLoss loss{.at_label = at_label,
                         .largest = largest,
                         .log_sum = log_sum,
                         .dot = in.label_smoothing > 0.0F ? weighted_sum(n, x, weights, 0) : 0.0F,
                         .first = first};
      loss.write(p, weights, row, label);
      if (!p.dlogits) continue;
      const float row_weight = p.row_weight ? *at_row(p.row_weight, in.rows, row) : 1.0F;
      Gradient g = coefficients(in, weights, label, lse, row_weight * inverse);
      g.softmax *= std::exp(-log_sum);
      write_gradient(in, {0, n}, weights, g, label, x, e, p.dlogits, row);
    }
  });
}

template <class T>
void backward_rows(const Context& ctx, const CrossEntropyBackward& p) {
  const CrossEntropyRows& in = p.in;
  const std::int64_t n = p.tile.cols;
  const ClassWeights weights(in.weight, in.cols);
  const float inverse = p.divisor == nullptr ? 1.0F : 1.0F / *p.divisor;

  ctx.parallel_for(in.rows.count, row_grain(n), [&](std::int64_t begin, std::int64_t end) {
    const Scratch scratch(2, n);
    float* e = scratch[1];
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t label = load_integer(in.labels, in.labels.offset(in.rows, row));
      if (label == in.ignore_index) {
        write_zeros(in, p.tile, p.dlogits, row, e);
        continue;
      }
      const T* x = mapped_row<T>(in, row, n, scratch[0]);
      const float lse = *at_row(p.lse, in.rows, row);
      const Vec shift = hn::Set(FloatTag(), lse);
      map(n, e, [&](Vec v) { return exp(hn::Sub(v, shift)); }, x);
      const float dloss = p.dloss ? *at_row(p.dloss, in.rows, row) : 1.0F;
      const Gradient g = coefficients(in, weights, label, lse, dloss * inverse);
      write_gradient(in, p.tile, weights, g, label, x, e, p.dlogits, row);
    }
  });
}

void forward(const Context& ctx, const CrossEntropyForward& p) {
  dispatch_logits(p.in, [&]<class T>() { forward_rows<T>(ctx, p); });
}

void backward(const Context& ctx, const CrossEntropyBackward& p) {
  dispatch_logits(p.in, [&]<class T>() { backward_rows<T>(ctx, p); });
}

void scale(const Context& ctx, const CrossEntropyScale& p) {
  if (*p.dloss == 1.0F && p.out.data == p.dlogits.data) return;
  const Vec factor = hn::Set(FloatTag(), *p.dloss);
  ctx.parallel_for(p.rows.count, row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    const Scratch scratch(2, p.cols);
    for (std::int64_t row = begin; row < end; ++row) {
      float* out = scratch[1];
      if (load_integer(p.labels, p.labels.offset(p.rows, row)) == p.ignore_index) {
        std::fill(out, out + p.cols, 0.0F);
      } else {
        const float* g = read(p.dlogits, p.dlogits.offset(p.rows, row), p.cols, scratch[0]);
        map(p.cols, out, [&](Vec v) { return hn::Mul(v, factor); }, g);
      }
      write(out, p.out, p.out.offset(p.rows, row), p.cols);
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

TIGON_CPU_KERNEL(CrossEntropyForward, forward);
TIGON_CPU_KERNEL(CrossEntropyBackward, backward);
TIGON_CPU_KERNEL(CrossEntropyScale, scale);

}  // namespace
}  // namespace tigon
#endif  // HWY_ONCE
