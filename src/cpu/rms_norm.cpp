#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/rms_norm.cpp"
#include "kernels/rms_norm.h"

#include <cmath>

#include "cpu/foreach_target.h"  // before simd-inl.h
#include "cpu/kernel.h"
#include "cpu/scratch.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {
namespace {

// weight + weight_offset for all columns; ones where there is no weight.
const float* scale_row(const RowView& weight, float offset, std::int64_t cols, float* scratch) {
  const float* w = read_or(weight, 1.0F, cols, scratch);
  if (!weight || offset == 0.0F) return w;
  map(cols, scratch, [&](Vec v) { return hn::Add(v, hn::Set(FloatTag(), offset)); }, w);
  return scratch;
}

template <class T>
void forward_rows(const Context& ctx, const RmsNormForward& p) {
  const Scratch shared(1, p.cols);
  const float* scale = scale_row(p.weight, p.weight_offset, p.cols, shared[0]);
  const bool rounds = p.round_before_weight && p.weight;

  ctx.parallel_for(p.rows.count, row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    const Scratch scratch(4, p.cols);
    for (std::int64_t row = begin; row < end; ++row) {
      const T* x = read<T>(p.x, p.x.offset(p.rows, row), p.cols, scratch[0]);
      if (p.residual) {
        const T* r = read<T>(p.residual, p.residual.offset(p.rows, row), p.cols, scratch[1]);
        const std::int64_t at = p.sum.offset(p.rows, row);
        T* s = write_buffer<T>(p.sum, at, scratch[2]);
        const auto add = [&](Vec a, Vec b) { return round_to(p.sum.dtype, hn::Add(a, b)); };
        map(p.cols, s, add, x, r);
        write(s, p.sum, at, p.cols);
        x = s;
      }
      const float squares = sum(p.cols, [](Vec v) { return hn::Mul(v, v); }, x);
      const float rstd = 1.0F / std::sqrt(squares / static_cast<float>(p.cols) + p.eps);
      if (p.rstd) static_cast<float*>(p.rstd.data)[p.rstd.offset(p.rows, row)] = rstd;

      const std::int64_t at = p.y.offset(p.rows, row);
      T* y = write_buffer<T>(p.y, at, scratch[3]);
      const Vec r = hn::Set(FloatTag(), rstd);
      NextRow next(p.rows, row + 1, p.x, p.residual);
      const auto scaled = [&](Vec v, Vec w) {
        next.ask();
        return hn::Mul(hn::Mul(v, r), w);
      };
      const auto rounded = [&](Vec v, Vec w) {
        next.ask();
        return hn::Mul(round_to(p.x.dtype, hn::Mul(v, r)), w);
      };
      if (rounds)
        map(p.cols, y, rounded, x, scale);
      else
        map(p.cols, y, scaled, x, scale);
      write(y, p.y, at, p.cols);
    }
  });
}

void forward(const Context& ctx, const RmsNormForward& p) {
  dispatch({&p.x, &p.residual, &p.sum, &p.y}, [&]<class T>() { forward_rows<T>(ctx, p); });
}

template <class T>
void backward_rows(const Context& ctx, const RmsNormBackward& p) {
  const Scratch shared(1, p.cols);
  const float* scale = scale_row(p.weight, p.weight_offset, p.cols, shared[0]);
  const RowSlices slices(p.rows.count, p.cols);
  float* partials = static_cast<float*>(ctx.workspace);

  ctx.parallel_for(slices.count(), 1, [&](std::int64_t first, std::int64_t last) {
    const Scratch scratch(4, p.cols);
    for (std::int64_t slice = first; slice < last; ++slice) {
      float* dweight = p.dweight ? partials + slice * p.cols : nullptr;
      if (dweight != nullptr) std::fill(dweight, dweight + p.cols, 0.0F);
      for (std::int64_t row = slices.begin(slice); row < slices.begin(slice + 1); ++row) {
        const T* x = read<T>(p.x, p.x.offset(p.rows, row), p.cols, scratch[0]);
        const T* dy = read<T>(p.dy, p.dy.offset(p.rows, row), p.cols, scratch[1]);
        const float rstd = static_cast<float*>(p.rstd.data)[p.rstd.offset(p.rows, row)];
        const Vec r = hn::Set(FloatTag(), rstd);

        if (dweight != nullptr) {
          const DType rounding = p.round_before_weight ? p.x.dtype : DType::float32;
          const auto add = [&](Vec acc, Vec g, Vec v) {
            return hn::MulAdd(g, round_to(rounding, hn::Mul(v, r)), acc);
          };
          map(p.cols, dweight, add, dweight, dy, x);
        }
        if (!p.dx) continue;
        const auto product = [](Vec g, Vec w, Vec v) { return hn::Mul(hn::Mul(g, w), v); };
        const float dot = sum(p.cols, product, dy, scale, x);
        const Vec c = hn::Set(FloatTag(), dot * rstd * rstd / static_cast<float>(p.cols));
        const std::int64_t at = p.dx.offset(p.rows, row);
        T* dx = write_buffer<T>(p.dx, at, scratch[3]);
        NextRow next(p.rows, row + 1, p.x, p.dy);
        const auto grad = [&](Vec g, Vec w, Vec v) {
          next.ask();
          return hn::Mul(r, hn::NegMulAdd(v, c, hn::Mul(g, w)));
        };
        if (p.dsum) {
          const T* s = read<T>(p.dsum, p.dsum.offset(p.rows, row), p.cols, scratch[2]);
          const auto grad_and_sum = [&](Vec g, Vec w, Vec v, Vec b) {
            return hn::Add(grad(g, w, v), b);
          };
          map(p.cols, dx, grad_and_sum, dy, scale, x, s);
        } else {
          map(p.cols, dx, grad, dy, scale, x);
        }
        write(dx, p.dx, at, p.cols);
      }
    }
  });
  if (p.dweight) sum_slices(ctx, partials, slices.count(), p.cols, p.dweight);
}

void backward(const Context& ctx, const RmsNormBackward& p) {
  dispatch({&p.x, &p.dy, &p.dsum, &p.dx}, [&]<class T>() { backward_rows<T>(ctx, p); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tigon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon {
namespace {

TIGON_CPU_KERNEL(RmsNormForward, forward);
TIGON_CPU_KERNEL(
    RmsNormBackward, backward, .workspace = [](const Context&, const RmsNormBackward& p) {
      return p.dweight ? RowSlices(p.rows.count, p.cols).bytes() : 0;
    });

}  // namespace
}  // namespace tigon
#endif  // HWY_ONCE
