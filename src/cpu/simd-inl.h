// The vocabulary of the CPU kernels: rows whose elements are computed on as float32 vectors,
// whatever their type and strides, and element-wise maps and sums over them. Included once per
// instruction set by Highway.
#if defined(TIGON_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIGON_CPU_SIMD_INL_H_
#undef TIGON_CPU_SIMD_INL_H_
#else
#define TIGON_CPU_SIMD_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/rows.h"
#include "hwy/cache_control.h"  // Prefetch
#include "hwy/highway.h"
#include "tigon/context.h"

HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Bf16 = hwy::bfloat16_t;
using F16 = hwy::float16_t;
using FloatTag = hn::ScalableTag<float>;
using Vec = hn::Vec<FloatTag>;

inline constexpr std::size_t kMaxLanes = HWY_MAX_BYTES / sizeof(float);

HWY_INLINE std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(FloatTag())); }

// --- elements <-> float32, rounded to nearest even; the pointer says the type -----------------

/// The bits of the nearest bfloat16 in the upper half of each lane; NaN stays NaN.
HWY_INLINE auto bf16_bits(Vec v) {
  const hn::RebindToUnsigned<FloatTag> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF)));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), hn::Or(bits, hn::Set(du, 0x400000)),
                        rounded);
}

HWY_INLINE Vec load(const float* p) { return hn::LoadU(FloatTag(), p); }

HWY_INLINE Vec load(const Bf16* p) {
  const hn::RebindToUnsigned<FloatTag> du;
  const hn::Rebind<std::uint16_t, FloatTag> d16;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}

HWY_INLINE Vec load(const F16* p) {
  return hn::PromoteTo(FloatTag(), hn::LoadU(hn::Rebind<F16, FloatTag>(), p));
}

HWY_INLINE void store(Vec v, float* p) { hn::StoreU(v, FloatTag(), p); }

HWY_INLINE void store(Vec v, Bf16* p) {
  const hn::Rebind<std::uint16_t, FloatTag> d16;
  const auto upper = hn::ShiftRight<16>(bf16_bits(v));
  hn::StoreU(hn::TruncateTo(d16, upper), d16, reinterpret_cast<std::uint16_t*>(p));
}

HWY_INLINE void store(Vec v, F16* p) {
  const hn::Rebind<F16, FloatTag> d16;
  hn::StoreU(hn::DemoteTo(d16, v), d16, p);
}

/// The first n < lanes() elements, then zeros.
template <class T>
HWY_INLINE Vec load_part(const T* p, std::int64_t n) {
  HWY_ALIGN T part[kMaxLanes] = {};
  std::memcpy(part, p, static_cast<std::size_t>(n) * sizeof(T));
  return load(part);
}

template <class T>
HWY_INLINE void store_part(Vec v, T* p, std::int64_t n) {
  HWY_ALIGN T part[kMaxLanes];
  store(v, part);
  std::memcpy(p, part, static_cast<std::size_t>(n) * sizeof(T));
}

/// v rounded to `dtype`, still float32.
HWY_INLINE Vec round_to(DType dtype, Vec v) {
  if (dtype == DType::bfloat16) {
    const hn::RebindToUnsigned<FloatTag> du;
    return hn::BitCast(FloatTag(), hn::And(bf16_bits(v), hn::Set(du, 0xFFFF0000U)));
  }
  if (dtype == DType::float16) {
    const hn::Rebind<F16, FloatTag> d16;
    return hn::PromoteTo(FloatTag(), hn::DemoteTo(d16, v));
  }
  return v;
}

// --- maps and reductions ------------------------------------------------------------------------

/// out[i] = f(in[i]...). out may be one of the inputs.
template <class F, class Out, class... In>
HWY_INLINE void map(std::int64_t n, Out* out, F f, const In*... in) {
  const std::int64_t step = lanes();
  std::int64_t i = 0;
  for (; i + step <= n; i += step) store(f(load(in + i)...), out + i);
  if (i < n) store_part(f(load_part(in + i, n - i)...), out + i, n - i);
}

/// The same for two outputs, which f gives as a pair of vectors.
template <class F, class Out, class... In>
HWY_INLINE void map_pair(std::int64_t n, Out* first, Out* second, F f, const In*... in) {
  const std::int64_t step = lanes();
  std::int64_t i = 0;
  for (; i + step <= n; i += step) {
    const auto [a, b] = f(load(in + i)...);
    store(a, first + i);
    store(b, second + i);
  }
  if (i < n) {
    const auto [a, b] = f(load_part(in + i, n - i)...);
    store_part(a, first + i, n - i);
    store_part(b, second + i, n - i);
  }
}

/// op over all f(in[i]...), from `start`, its neutral element. Four accumulators per lane: the
/// order is fixed by the vector width alone.
template <class F, class Op, class... In>
HWY_INLINE Vec reduce(std::int64_t n, Vec start, Op op, F f, const In*... in) {
  const std::int64_t step = lanes();
  Vec a0 = start;
  Vec a1 = start;
  Vec a2 = start;
  Vec a3 = start;
  std::int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    a0 = op(a0, f(load(in + i)...));
    a1 = op(a1, f(load(in + i + step)...));
    a2 = op(a2, f(load(in + i + 2 * step)...));
    a3 = op(a3, f(load(in + i + 3 * step)...));
  }
  for (; i + step <= n; i += step) a0 = op(a0, f(load(in + i)...));
  if (i < n) {
    const auto valid = hn::FirstN(FloatTag(), static_cast<std::size_t>(n - i));
    a1 = op(a1, hn::IfThenElse(valid, f(load_part(in + i, n - i)...), start));
  }
  return op(op(a0, a1), op(a2, a3));
}

/// Sum of f(in[i]...).
template <class F, class... In>
HWY_INLINE float sum(std::int64_t n, F f, const In*... in) {
  const FloatTag d;
  const auto add = [](Vec a, Vec b) { return hn::Add(a, b); };
  return hn::GetLane(hn::SumOfLanes(d, reduce(n, hn::Zero(d), add, f, in...)));
}

/// The two sums of f(in[i]...), which gives a pair of vectors.
template <class F, class... In>
HWY_INLINE std::pair<float, float> sums(std::int64_t n, F f, const In*... in) {
  const FloatTag d;
  const std::int64_t step = lanes();
  Vec a = hn::Zero(d);
  Vec b = a;
  std::int64_t i = 0;
  for (; i + step <= n; i += step) {
    const auto [u, v] = f(load(in + i)...);
    a = hn::Add(a, u);
    b = hn::Add(b, v);
  }
  if (i < n) {
    const auto valid = hn::FirstN(d, static_cast<std::size_t>(n - i));
    const auto [u, v] = f(load_part(in + i, n - i)...);
    a = hn::Add(a, hn::IfThenElseZero(valid, u));
    b = hn::Add(b, hn::IfThenElseZero(valid, v));
  }
  return {hn::GetLane(hn::SumOfLanes(d, a)), hn::GetLane(hn::SumOfLanes(d, b))};
}

/// map() to float32 that also returns the sum of what it wrote.
template <class F, class... In>
HWY_INLINE float map_sum(std::int64_t n, float* out, F f, const In*... in) {
  const FloatTag d;
  const std::int64_t step = lanes();
  Vec total = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + step <= n; i += step) {
    const Vec v = f(load(in + i)...);
    store(v, out + i);
    total = hn::Add(total, v);
  }
  if (i < n) {
    const Vec v = f(load_part(in + i, n - i)...);
    store_part(v, out + i, n - i);
    const auto valid = hn::FirstN(d, static_cast<std::size_t>(n - i));
    total = hn::Add(total, hn::IfThenElseZero(valid, v));
  }
  return hn::GetLane(hn::SumOfLanes(d, total));
}

/// Largest element; where there is a NaN, it or any other.
template <class T>
HWY_INLINE float max(std::int64_t n, const T* in) {
  const FloatTag d;
  const Vec start = hn::Set(d, -std::numeric_limits<float>::infinity());
  const auto larger = [](Vec a, Vec b) { return hn::Max(a, b); };
  // Not MaxOfLanes: where it is emulated it starts from the lowest finite number.
  HWY_ALIGN float lane[kMaxLanes];
  store(reduce(n, start, larger, [](Vec v) { return v; }, in), lane);
  return *std::max_element(lane, lane + lanes());
}

/// e^v to 1.5 ulp; infinite and NaN where it should be, 0 below 2^-125.
/// v = q ln 2 + r with |r| <= ln 2 / 2: a polynomial gives 2 e^r, the exponent's bits give 2^(q-1),
/// so that neither leaves the range before their product does.
HWY_INLINE Vec exp(Vec v) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it, here q - 1 + 127, in the low bits.
  const Vec magic = hn::Set(d, 12582912.0F + 126.0F);
  const Vec shifted = hn::MulAdd(v, hn::Set(d, 1.44269504F), magic);
  const Vec q = hn::Sub(shifted, magic);
  Vec r = hn::NegMulAdd(q, hn::Set(d, 0.693359375F), v);  // ln 2 in two parts
  r = hn::NegMulAdd(q, hn::Set(d, -2.12194440e-4F), r);
  Vec p = hn::Set(d, 2.768728882e-3F);
  p = hn::MulAdd(p, r, hn::Set(d, 1.674832590e-2F));
  p = hn::MulAdd(p, r, hn::Set(d, 8.333600312e-2F));
  p = hn::MulAdd(p, r, hn::Set(d, 3.333286345e-1F));
  p = hn::MulAdd(p, r, hn::Set(d, 9.999998808e-1F));
  p = hn::MulAdd(p, r, hn::Set(d, 2.0F));
  p = hn::MulAdd(p, r, hn::Set(d, 2.0F));
  const Vec power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted)));
  const Vec infinite = hn::Set(d, std::numeric_limits<float>::infinity());
  const Vec y = hn::IfThenElse(hn::Gt(v, hn::Set(d, 89.0F)), infinite, hn::Mul(p, power));
  return hn::IfThenZeroElse(hn::Lt(v, hn::Set(d, -86.6F)), y);
}

// --- rows ---------------------------------------------------------------------------------------

/// Calls f.template operator()<T>(): T is the element type of all these views where they share one
/// and have unit column stride, so that rows are used in place; else float, and rows pass through
/// scratch. Absent views do not count.
template <class F>
HWY_INLINE void dispatch(std::initializer_list<const RowView*> views, F&& f) {
  const RowView& first = **views.begin();
  const bool in_place = std::all_of(views.begin(), views.end(), [&](const RowView* v) {
    return !*v || (v->dtype == first.dtype && v->col_stride == 1);
  });
  if (in_place && first.dtype == DType::bfloat16) return f.template operator()<Bf16>();
  if (in_place && first.dtype == DType::float16) return f.template operator()<F16>();
  f.template operator()<float>();
}

template <class From, class To>
HWY_INLINE void convert(const From* from, std::int64_t from_stride, To* to, std::int64_t to_stride,
                        std::int64_t n) {
  if (from_stride == 1 && to_stride == 1) return map(n, to, [](Vec v) { return v; }, from);
  HWY_ALIGN From in[kMaxLanes] = {};
  HWY_ALIGN To out[kMaxLanes];
  for (std::int64_t i = 0; i < n; i += lanes()) {
    const std::int64_t m = std::min(lanes(), n - i);
    for (std::int64_t j = 0; j < m; ++j) in[j] = from[(i + j) * from_stride];
    store(load(in), out);
    for (std::int64_t j = 0; j < m; ++j) to[(i + j) * to_stride] = out[j];
  }
}

/// `n` elements of `view` from element `at` on: in place where they are T side by side, else
/// (T is float then) converted into `scratch`.
template <class T = float>
HWY_INLINE const T* read(const RowView& view, std::int64_t at, std::int64_t n, float* scratch) {
  if constexpr (!std::is_same_v<T, float>) {
    return static_cast<const T*>(view.data) + at;
  } else {
    const std::int64_t stride = view.col_stride;
    if (view.dtype == DType::bfloat16)
      convert(static_cast<const Bf16*>(view.data) + at, stride, scratch, 1, n);
    else if (view.dtype == DType::float16)
      convert(static_cast<const F16*>(view.data) + at, stride, scratch, 1, n);
    else if (stride == 1)
      return static_cast<const float*>(view.data) + at;
    else
      convert(static_cast<const float*>(view.data) + at, stride, scratch, 1, n);
    return scratch;
  }
}

/// A [cols] vector as float32, all `value` where it is absent.
HWY_INLINE const float* read_or(const RowView& view, float value, std::int64_t cols,
                                float* scratch) {
  if (view) return read(view, 0, cols, scratch);
  std::fill(scratch, scratch + cols, value);
  return scratch;
}

/// Asks memory for the rows that are read next while this one is worked on: the hardware's
/// prefetcher stops at pages, which is where rows end. A line for every vector, because a burst
/// fills the queue of misses and stops the core; measured on softmax, a quarter of the time.
template <std::size_t kViews>
class NextRow {
 public:
  template <class... Views>
  HWY_INLINE NextRow(const RowSpace& space, std::int64_t row, const Views&... views)
      : at_{begin(views, space, row)...}, step_{step(views)...} {}

  /// Call once per vector.
  HWY_INLINE void ask() {
    for (std::size_t i = 0; i < kViews; ++i) {
      hwy::Prefetch(at_[i]);
      at_[i] += step_[i];
    }
  }

 private:
  HWY_INLINE static const char* begin(const RowView& view, const RowSpace& space,
                                      std::int64_t row) {
    static constexpr char kNothing = 0;
    if (!view || row >= space.count) return &kNothing;
    return static_cast<const char*>(view.data) + view.offset(space, row) * size_of(view.dtype);
  }
  HWY_INLINE static std::int64_t step(const RowView& view) {
    return view.col_stride == 1 ? lanes() * size_of(view.dtype) : 0;
  }

  const char* at_[kViews];
  std::int64_t step_[kViews];
};
template <class... Views>
NextRow(const RowSpace&, std::int64_t, const Views&...) -> NextRow<sizeof...(Views)>;

/// Where to compute a row that write() then brings to `view`: the view's own memory where it is T
/// side by side, else `scratch`. (Stores that bypass the caches were tried: 20 % faster into
/// memory that is reused, 25 % slower into fresh pages, which is what PyTorch's large outputs are.)
template <class T = float>
HWY_INLINE T* write_buffer(const RowView& view, std::int64_t at, float* scratch) {
  if constexpr (!std::is_same_v<T, float>) {
    return static_cast<T*>(view.data) + at;
  } else {
    const bool in_place = view.dtype == DType::float32 && view.col_stride == 1;
    return in_place ? static_cast<float*>(view.data) + at : scratch;
  }
}

template <class T>
HWY_INLINE void write(const T* from, const RowView& view, std::int64_t at, std::int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    const std::int64_t stride = view.col_stride;
    float* to = static_cast<float*>(view.data) + at;
    if (view.dtype == DType::bfloat16)
      convert(from, 1, static_cast<Bf16*>(view.data) + at, stride, n);
    else if (view.dtype == DType::float16)
      convert(from, 1, static_cast<F16*>(view.data) + at, stride, n);
    else if (to != from)
      convert(from, 1, to, stride, n);
  }
}

/// out = sum over slices of partials [slices, cols], in order; partials are overwritten.
HWY_INLINE void sum_slices(const Context& ctx, float* partials, std::int64_t slices,
                           std::int64_t cols, const RowView& out) {
  ctx.parallel_for(cols, 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t s = 1; s < slices; ++s)
      map(
          end - begin, partials + begin, [](Vec a, Vec b) { return hn::Add(a, b); },
          partials + begin, partials + s * cols + begin);
    write(partials + begin, out, begin * out.col_stride, end - begin);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tigon
HWY_AFTER_NAMESPACE();

#endif  // TIGON_CPU_SIMD_INL_H_
