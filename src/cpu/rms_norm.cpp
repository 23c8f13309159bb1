#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/rms_norm.cpp"
#include "kernels/rms_norm.h"

#include <cmath>

#include "cpu/foreach_target.h"  // before simd-inl.h
#include "cpu/scratch.h"
#include "cpu/simd-inl.h"
#include "kernels/registry.h"

HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {

// weight + weight_offset for all columns, or null where it is 1 everywhere.
const float* scale_row(const RowView& weight, float offset, std::int64_t cols, float* scratch) {
  if (!weight) return nullptr;
  const float* w = read(weight, 0, cols, scratch);
  if (offset == 0.0F) return w;
  map(cols, scratch, [&](Vec v) { return hn::Add(v, hn::Set(FloatTag(), offset)); }, w);
  return scratch;
}

void forward(const Context& ctx, const RmsNormForward& p) {
  const Scratch shared(1, p.cols);
  const float* scale = scale_row(p.weight, p.weight_offset, p.cols, shared[0]);
  ctx.parallel_for(p.rows.count, row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    const FloatTag d;
    const Scratch scratch(3, p.cols);
    for (std::int64_t row = begin; row < end; ++row) {
      const float* x = read(p.x, p.x.offset(p.rows, row), p.cols, scratch[0]);
      if (p.residual) {
        const float* r = read(p.residual, p.residual.offset(p.rows, row), p.cols, scratch[1]);
        float* s = scratch[0];
        map(p.cols, s, [](Vec a, Vec b) { return hn::Add(a, b); }, x, r);
        round_to(p.sum.dtype, s, p.cols);
        write(s, p.sum, p.sum.offset(p.rows, row), p.cols);
        x = s;
      }
      const float squares = sum(p.cols, [](Vec v) { return hn::Mul(v, v); }, x);
      const float rstd = 1.0F / std::sqrt(squares / static_cast<float>(p.cols) + p.eps);
      if (p.rstd) static_cast<float*>(p.rstd.data)[p.rstd.offset(p.rows, row)] = rstd;

      const std::int64_t at = p.y.offset(p.rows, row);
      float* y = write_buffer(p.y, at, scratch[2]);
      const Vec r = hn::Set(d, rstd);
      if (scale == nullptr) {
        map(p.cols, y, [&](Vec v) { return hn::Mul(v, r); }, x);
      } else if (p.round_before_weight && p.x.dtype != DType::float32) {
        map(p.cols, y, [&](Vec v) { return hn::Mul(v, r); }, x);
        round_to(p.x.dtype, y, p.cols);
        map(p.cols, y, [](Vec v, Vec w) { return hn::Mul(v, w); }, y, scale);
      } else {
        map(p.cols, y, [&](Vec v, Vec w) { return hn::Mul(hn::Mul(v, r), w); }, x, scale);
      }
      write(y, p.y, at, p.cols);
    }
  });
}

void backward(const Context& ctx, const RmsNormBackward& p) {
  const Scratch shared(1, p.cols);
  const float* scale = scale_row(p.weight, p.weight_offset, p.cols, shared[0]);
  const RowSlices slices(p.rows.count, p.cols);
  float* partials = static_cast<float*>(ctx.workspace);

  ctx.parallel_for(slices.count(), 1, [&](std::int64_t first, std::int64_t last) {
    const FloatTag d;
    const Scratch scratch(5, p.cols);
    for (std::int64_t slice = first; slice < last; ++slice) {
      float* dweight = p.dweight ? partials + slice * p.cols : nullptr;
      if (dweight != nullptr) std::fill(dweight, dweight + p.cols, 0.0F);
      for (std::int64_t row = slices.begin(slice); row < slices.begin(slice + 1); ++row) {
        const float* x = read(p.x, p.x.offset(p.rows, row), p.cols, scratch[0]);
        const float* dy = read(p.dy, p.dy.offset(p.rows, row), p.cols, scratch[1]);
        const float rstd = static_cast<float*>(p.rstd.data)[p.rstd.offset(p.rows, row)];
        const Vec r = hn::Set(d, rstd);

        if (dweight != nullptr) {
          float* xhat = scratch[2];
          map(p.cols, xhat, [&](Vec v) { return hn::Mul(v, r); }, x);
          if (p.round_before_weight) round_to(p.x.dtype, xhat, p.cols);
          map(
              p.cols, dweight, [](Vec acc, Vec g, Vec v) { return hn::MulAdd(g, v, acc); }, dweight,
              dy, xhat);
        }
        if (!p.dx) continue;
        const float* g = dy;
        if (scale != nullptr) {
          map(p.cols, scratch[3], [](Vec a, Vec w) { return hn::Mul(a, w); }, dy, scale);
          g = scratch[3];
        }
        const float dot = sum(p.cols, [](Vec a, Vec b) { return hn::Mul(a, b); }, g, x);
        const Vec c = hn::Set(d, dot * rstd * rstd / static_cast<float>(p.cols));
        const std::int64_t at = p.dx.offset(p.rows, row);
        float* dx = write_buffer(p.dx, at, scratch[4]);
        const auto grad = [&](Vec a, Vec v) { return hn::Mul(r, hn::NegMulAdd(v, c, a)); };
        if (p.dsum) {
          const float* s = read(p.dsum, p.dsum.offset(p.rows, row), p.cols, scratch[2]);
          map(p.cols, dx, [&](Vec a, Vec v, Vec b) { return hn::Add(grad(a, v), b); }, g, x, s);
        } else {
          map(p.cols, dx, grad, g, x);
        }
        write(dx, p.dx, at, p.cols);
      }
    }
  });
  if (p.dweight) sum_slices(ctx, partials, slices.count(), p.cols, p.dweight);
}

}  // namespace HWY_NAMESPACE
}  // namespace tigon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon {
namespace {

HWY_EXPORT(forward);
HWY_EXPORT(backward);

const RegisterKernel<RmsNormForward> kForward(DeviceType::cpu,
                                              {.launch = [](const Context& ctx,
                                                            const RmsNormForward& p) {
                                                HWY_DYNAMIC_DISPATCH(forward)(ctx, p);
                                              }});
const RegisterKernel<RmsNormBackward> kBackward(
    DeviceType::cpu,
    {.launch = [](const Context& ctx,
                  const RmsNormBackward& p) { HWY_DYNAMIC_DISPATCH(backward)(ctx, p); },
     .workspace =
         [](const Context&, const RmsNormBackward& p) {
           return p.dweight ? RowSlices(p.rows.count, p.cols).bytes() : 0;
         }});

}  // namespace
}  // namespace tigon
#endif  // HWY_ONCE
