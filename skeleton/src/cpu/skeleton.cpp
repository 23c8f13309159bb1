#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/skeleton.cpp"
#include "kernels/skeleton.h"

#include "cpu/foreach_target.h"  // before simd-inl.h
#include "cpu/kernel.h"
#include "cpu/scratch.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {
namespace {

void forward(const Context& ctx, const SkeletonForward& p) {
  const Scratch shared(1, p.cols);
  const float* weight = read(p.weight, 0, p.cols, shared[0]);
  ctx.parallel_for(p.rows.count, row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    const Scratch scratch(2, p.cols);
    for (std::int64_t row = begin; row < end; ++row) {
      const float* x = read(p.x, p.x.offset(p.rows, row), p.cols, scratch[0]);
      const std::int64_t at = p.y.offset(p.rows, row);
      float* y = write_buffer(p.y, at, scratch[1]);
      map(p.cols, y, [](Vec v, Vec w) { return hn::Mul(v, w); }, x, weight);
      write(y, p.y, at, p.cols);
    }
  });
}

void backward(const Context& ctx, const SkeletonBackward& p) {
  const Scratch shared(1, p.cols);
  const float* weight = read(p.weight, 0, p.cols, shared[0]);
  const RowSlices slices(p.rows.count, p.cols);
  float* partials = static_cast<float*>(ctx.workspace);

  ctx.parallel_for(slices.count(), 1, [&](std::int64_t first, std::int64_t last) {
    const Scratch scratch(3, p.cols);
    for (std::int64_t slice = first; slice < last; ++slice) {
      float* dweight = p.dweight ? partials + slice * p.cols : nullptr;
      if (dweight != nullptr) std::fill(dweight, dweight + p.cols, 0.0F);
      for (std::int64_t row = slices.begin(slice); row < slices.begin(slice + 1); ++row) {
        const float* dy = read(p.dy, p.dy.offset(p.rows, row), p.cols, scratch[0]);
        if (dweight != nullptr) {
          const float* x = read(p.x, p.x.offset(p.rows, row), p.cols, scratch[1]);
          map(
              p.cols, dweight, [](Vec acc, Vec g, Vec v) { return hn::MulAdd(g, v, acc); }, dweight,
              dy, x);
        }
        if (!p.dx) continue;
        const std::int64_t at = p.dx.offset(p.rows, row);
        float* dx = write_buffer(p.dx, at, scratch[2]);
        map(p.cols, dx, [](Vec g, Vec w) { return hn::Mul(g, w); }, dy, weight);
        write(dx, p.dx, at, p.cols);
      }
    }
  });
  if (p.dweight) sum_slices(ctx, partials, slices.count(), p.cols, p.dweight);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tigon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon {
namespace {

TIGON_CPU_KERNEL(SkeletonForward, forward);
TIGON_CPU_KERNEL(
    SkeletonBackward, backward, .workspace = [](const Context&, const SkeletonBackward& p) {
      return p.dweight ? RowSlices(p.rows.count, p.cols).bytes() : 0;
    });

}  // namespace
}  // namespace tigon
#endif  // HWY_ONCE
