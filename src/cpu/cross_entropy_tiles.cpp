#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/cross_entropy_tiles.cpp"
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

#include "cpu/foreach_target.h"  // before simd-inl.h
#include "cpu/kernel.h"
#include "cpu/loss-inl.h"
#include "cpu/scratch.h"
#include "cpu/simd-inl.h"
#include "kernels/cross_entropy.h"

// Losses of rows whose columns come a tile at a time.
HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void add_rows(const Context& ctx, const CrossEntropyTile& p) {
  const CrossEntropyRows& in = p.in;
  const CrossEntropyStatistics& all = p.statistics;
  const std::int64_t n = p.tile.cols;
  const ClassWeights weights(in.weight, in.cols);
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

  ctx.parallel_for(in.rows.count, row_grain(n), [&](std::int64_t begin, std::int64_t end) {
    const Scratch scratch(1, n);
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t label = load_integer(in.labels, in.labels.offset(in.rows, row));
      if (label == in.ignore_index) continue;
      // A value of this row, as it was before this tile.
      const auto at = [&](const RowView& view, float start) {
        float* here = at_row(view, in.rows, row);
        if (p.tile.first == 0) *here = start;
        return here;
      };
      const T* x = mapped_row<T>(in, row, n, scratch[0]);
      float* largest = at(all.largest, -FLT_MAX);  // finite: a tile may be all -Inf
      float* total = at(all.sum, 0.0F);
      const float top = std::max(*largest, max(n, x));
      const Vec shift = hn::Set(FloatTag(), top);
      const float added = sum(n, [&](Vec v) { return exp(hn::Sub(v, shift)); }, x);
      *total = *total * std::exp(*largest - top) + added;
      *largest = top;

      float* at_label = at(all.at_label, kNaN);
      const std::int64_t away = label - p.tile.first;
      if (away >= 0 && away < n) *at_label = value(x + away);
      if (all.before) {
        float* before = at(all.before, kNone);
        if (away > 0) *before = std::max(*before, max(std::min(away, n), x));
      }
      if (all.dot) *at(all.dot, 0.0F) += weighted_sum(n, x, weights, p.tile.first);
    }
  });
}

void add_tile(const Context& ctx, const CrossEntropyTile& p) {
  dispatch_logits(p.in, [&]<class T>() { add_rows<T>(ctx, p); });
}

void finish(const Context& ctx, const CrossEntropyFinish& p) {
  const CrossEntropyRows& in = p.results.in;
  const CrossEntropyStatistics& all = p.statistics;
  const ClassWeights weights(in.weight, in.cols);
  ctx.parallel_for(in.rows.count, 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t label = load_integer(in.labels, in.labels.offset(in.rows, row));
      if (label == in.ignore_index) {
        write_no_loss(p.results, row);
        continue;
      }
      const auto get = [&](const RowView& view) {
        return view ? *at_row(view, in.rows, row) : 0.0F;
      };
      const float at_label = get(all.at_label);
      const float largest = get(all.largest);
      const RowLoss loss{.at_label = at_label,
                         .largest = largest,
                         .log_sum = std::log(get(all.sum)),
                         .dot = get(all.dot),
                         .first = at_label == largest && get(all.before) < largest};
      loss.write(p.results, weights, row, label);
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

TIGON_CPU_KERNEL(CrossEntropyTile, add_tile);
TIGON_CPU_KERNEL(CrossEntropyFinish, finish);

}  // namespace
}  // namespace tigon
#endif  // HWY_ONCE
