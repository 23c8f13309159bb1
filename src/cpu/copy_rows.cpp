#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/copy_rows.cpp"
#include "kernels/copy_rows.h"

#include <algorithm>

#include "cpu/foreach_target.h"  // before simd-inl.h
#include "cpu/kernel.h"
#include "cpu/scratch.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {
namespace {

/// Rows of one type pass as they are.
bool moves_bytes(const CopyRows& p) {
  return p.scale == nullptr && p.from && p.from.dtype == p.to.dtype && p.from.col_stride == 1 &&
         p.to.col_stride == 1;
}

void copy(const Context& ctx, const CopyRows& p) {
  const float factor = p.scale == nullptr ? 1.0F : *p.scale;
  if (p.scale != nullptr && factor == 1.0F && p.from.data == p.to.data) return;
  const std::int64_t bytes = size_of(p.to.dtype);
  ctx.parallel_for(p.count, row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    const Scratch scratch(2, p.cols);
    const Vec scale = hn::Set(FloatTag(), factor);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t to_row = p.to_index == nullptr ? i : p.to_index[i];
      const std::int64_t from_row = p.from_index == nullptr ? i : p.from_index[i];
      const std::int64_t to = p.to.offset(p.to_rows, to_row);
      const std::int64_t from = p.from.offset(p.from_rows, from_row);
      if (moves_bytes(p)) {
        std::memcpy(static_cast<char*>(p.to.data) + to * bytes,
                    static_cast<const char*>(p.from.data) + from * bytes,
                    static_cast<std::size_t>(p.cols * bytes));
        continue;
      }
      float* out = write_buffer(p.to, to, scratch[1]);
      if (!p.from) {
        std::fill(out, out + p.cols, p.fill);
      } else if (p.scale == nullptr) {
        write(read(p.from, from, p.cols, scratch[0]), p.to, to, p.cols);
        continue;
      } else {
        const float* in = read(p.from, from, p.cols, scratch[0]);
        const Vec zero = hn::Zero(FloatTag());
        map(
            p.cols, out,
            [&](Vec v) { return hn::IfThenElse(hn::Eq(v, zero), v, hn::Mul(v, scale)); }, in);
      }
      write(out, p.to, to, p.cols);
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

TIGON_CPU_KERNEL(CopyRows, copy);

}  // namespace
}  // namespace tigon
#endif  // HWY_ONCE
