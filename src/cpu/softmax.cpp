#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/softmax.cpp"
#include "kernels/softmax.h"

#include "cpu/foreach_target.h"  // before simd-inl.h
#include "cpu/kernel.h"
#include "cpu/scratch.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void forward_rows(const Context& ctx, const SoftmaxForward& p) {
  ctx.parallel_for(p.rows.count, row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    const FloatTag d;
    const Scratch scratch(3, p.cols);
    for (std::int64_t row = begin; row < end; ++row) {
      const T* x = read<T>(p.x, p.x.offset(p.rows, row), p.cols, scratch[0]);
      const Vec top = hn::Set(d, max(p.cols, x));
      const std::int64_t at = p.y.offset(p.rows, row);
      T* y = write_buffer<T>(p.y, at, scratch[1]);
      float* e = scratch[2];  // in place where that is float32 too
      if constexpr (std::is_same_v<T, float>) e = y;
      NextRow next(p.rows, row + 1, p.x);
      const auto exponential = [&](Vec v) {
        next.ask();
        return exp(hn::Sub(v, top));
      };
      const float total = map_sum(p.cols, e, exponential, x);
      const Vec scale = hn::Set(d, 1.0F / total);
      map(p.cols, y, [&](Vec v) { return hn::Mul(v, scale); }, e);
      write(y, p.y, at, p.cols);
    }
  });
}

void forward(const Context& ctx, const SoftmaxForward& p) {
  if (p.cols == 0) return;
  dispatch({&p.x, &p.y}, [&]<class T>() { forward_rows<T>(ctx, p); });
}

template <class T>
void backward_rows(const Context& ctx, const SoftmaxBackward& p) {
  ctx.parallel_for(p.rows.count, row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    const Scratch scratch(3, p.cols);
    for (std::int64_t row = begin; row < end; ++row) {
      const T* y = read<T>(p.y, p.y.offset(p.rows, row), p.cols, scratch[0]);
      const T* dy = read<T>(p.dy, p.dy.offset(p.rows, row), p.cols, scratch[1]);
      const float dot = sum(p.cols, [](Vec g, Vec v) { return hn::Mul(g, v); }, dy, y);
      const std::int64_t at = p.dx.offset(p.rows, row);
      T* dx = write_buffer<T>(p.dx, at, scratch[2]);
      const Vec mean = hn::Set(FloatTag(), dot);
      NextRow next(p.rows, row + 1, p.y, p.dy);
      const auto grad = [&](Vec g, Vec v) {
        next.ask();
        return hn::Mul(v, hn::Sub(g, mean));
      };
      map(p.cols, dx, grad, dy, y);
      write(dx, p.dx, at, p.cols);
    }
  });
}

void backward(const Context& ctx, const SoftmaxBackward& p) {
  if (p.cols == 0) return;
  dispatch({&p.y, &p.dy, &p.dx}, [&]<class T>() { backward_rows<T>(ctx, p); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tigon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon {
namespace {

TIGON_CPU_KERNEL(SoftmaxForward, forward);
TIGON_CPU_KERNEL(SoftmaxBackward, backward);

}  // namespace
}  // namespace tigon
#endif  // HWY_ONCE
