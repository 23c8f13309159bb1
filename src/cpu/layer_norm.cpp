#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/layer_norm.cpp"
#include "kernels/layer_norm.h"

#include <cmath>

#include "cpu/foreach_target.h"  // before simd-inl.h
#include "cpu/kernel.h"
#include "cpu/scratch.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void forward_rows(const Context& ctx, const LayerNormForward& p) {
  const Scratch shared(2, p.cols);
  const float* weight = read_or(p.weight, 1.0F, p.cols, shared[0]);
  const float* bias = read_or(p.bias, 0.0F, p.cols, shared[1]);
  const auto n = static_cast<float>(p.cols);

  ctx.parallel_for(p.rows.count, row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    const FloatTag d;
    const Scratch scratch(2, p.cols);
    for (std::int64_t row = begin; row < end; ++row) {
      const T* x = read<T>(p.x, p.x.offset(p.rows, row), p.cols, scratch[0]);
      const float mean = sum(p.cols, [](Vec v) { return v; }, x) / n;
      const Vec m = hn::Set(d, mean);
      const auto squared_deviation = [&](Vec v) {
        const Vec deviation = hn::Sub(v, m);
        return hn::Mul(deviation, deviation);
      };
      const float variance = sum(p.cols, squared_deviation, x) / n;
      const float rstd = 1.0F / std::sqrt(variance + p.eps);
      if (p.mean) static_cast<float*>(p.mean.data)[p.mean.offset(p.rows, row)] = mean;
      if (p.rstd) static_cast<float*>(p.rstd.data)[p.rstd.offset(p.rows, row)] = rstd;

      const std::int64_t at = p.y.offset(p.rows, row);
      T* y = write_buffer<T>(p.y, at, scratch[1]);
      const Vec r = hn::Set(d, rstd);
      NextRow next(p.rows, row + 1, p.x);
      const auto normalise = [&](Vec v, Vec w, Vec b) {
        next.ask();
        return hn::MulAdd(hn::Mul(hn::Sub(v, m), r), w, b);
      };
      map(p.cols, y, normalise, x, weight, bias);
      write(y, p.y, at, p.cols);
    }
  });
}

void forward(const Context& ctx, const LayerNormForward& p) {
  dispatch({&p.x, &p.y}, [&]<class T>() { forward_rows<T>(ctx, p); });
}

template <class T>
void backward_rows(const Context& ctx, const LayerNormBackward& p) {
  const Scratch shared(1, p.cols);
  const float* weight = read_or(p.weight, 1.0F, p.cols, shared[0]);
  const RowSlices slices(p.rows.count, p.cols);
  const auto n = static_cast<float>(p.cols);
  float* weight_partials = static_cast<float*>(ctx.workspace);
  float* bias_partials = weight_partials + (p.dweight ? slices.count() * p.cols : 0);

  ctx.parallel_for(slices.count(), 1, [&](std::int64_t first, std::int64_t last) {
    const FloatTag d;
    const Scratch scratch(3, p.cols);
    for (std::int64_t slice = first; slice < last; ++slice) {
      float* dweight = p.dweight ? weight_partials + slice * p.cols : nullptr;
      float* dbias = p.dbias ? bias_partials + slice * p.cols : nullptr;
      for (float* partial : {dweight, dbias})
        if (partial != nullptr) std::fill(partial, partial + p.cols, 0.0F);

      for (std::int64_t row = slices.begin(slice); row < slices.begin(slice + 1); ++row) {
        const T* x = read<T>(p.x, p.x.offset(p.rows, row), p.cols, scratch[0]);
        const T* dy = read<T>(p.dy, p.dy.offset(p.rows, row), p.cols, scratch[1]);
        const float rstd = static_cast<float*>(p.rstd.data)[p.rstd.offset(p.rows, row)];
        const Vec m = hn::Set(d, static_cast<float*>(p.mean.data)[p.mean.offset(p.rows, row)]);
        const Vec r = hn::Set(d, rstd);
        const auto normalised = [&](Vec v) { return hn::Mul(hn::Sub(v, m), r); };

        if (dweight != nullptr) {
          const auto add = [&](Vec acc, Vec g, Vec v) { return hn::MulAdd(g, normalised(v), acc); };
          map(p.cols, dweight, add, dweight, dy, x);
        }
        if (dbias != nullptr)
          map(p.cols, dbias, [](Vec acc, Vec g) { return hn::Add(acc, g); }, dbias, dy);
        if (!p.dx) continue;

        const auto [sum_g, sum_g_xhat] = sums(
            p.cols,
            [&](Vec g, Vec w, Vec v) {
              const Vec product = hn::Mul(g, w);
              return std::pair(product, hn::Mul(product, normalised(v)));
            },
            dy, weight, x);
        const Vec mean_g = hn::Set(d, sum_g / n);
        const Vec mean_g_xhat = hn::Set(d, sum_g_xhat / n);
        const std::int64_t at = p.dx.offset(p.rows, row);
        T* dx = write_buffer<T>(p.dx, at, scratch[2]);
        NextRow next(p.rows, row + 1, p.x, p.dy);
        const auto grad = [&](Vec g, Vec w, Vec v) {
          next.ask();
          const Vec centred = hn::Sub(hn::Mul(g, w), mean_g);  // as rounded in the sum: 0 for D = 1
          return hn::Mul(r, hn::NegMulAdd(normalised(v), mean_g_xhat, centred));
        };
        map(p.cols, dx, grad, dy, weight, x);
        write(dx, p.dx, at, p.cols);
      }
    }
  });
  if (p.dweight) sum_slices(ctx, weight_partials, slices.count(), p.cols, p.dweight);
  if (p.dbias) sum_slices(ctx, bias_partials, slices.count(), p.cols, p.dbias);
}

void backward(const Context& ctx, const LayerNormBackward& p) {
  dispatch({&p.x, &p.dy, &p.dx}, [&]<class T>() { backward_rows<T>(ctx, p); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tigon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon {
namespace {

TIGON_CPU_KERNEL(LayerNormForward, forward);
TIGON_CPU_KERNEL(
    LayerNormBackward, backward, .workspace = [](const Context&, const LayerNormBackward& p) {
      const std::size_t sums = (p.dweight ? 1 : 0) + (p.dbias ? 1 : 0);
      return sums * RowSlices(p.rows.count, p.cols).bytes();
    });

}  // namespace
}  // namespace tigon
#endif  // HWY_ONCE
