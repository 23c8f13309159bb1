// The vocabulary of the CPU kernels: rows as float32 in memory, whatever their type and strides,
// and element-wise maps and sums over them. Included once per instruction set by Highway.
#if defined(TIGON_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIGON_CPU_SIMD_INL_H_
#undef TIGON_CPU_SIMD_INL_H_
#else
#define TIGON_CPU_SIMD_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/rows.h"
#include "hwy/highway.h"
#include "tigon/context.h"

HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using Vec = hn::Vec<FloatTag>;

HWY_INLINE std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(FloatTag())); }

// --- bfloat16 and float16 <-> float32, round to nearest even ---------------------------------

HWY_INLINE Vec load_bf16(const std::uint16_t* p) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  const hn::Rebind<std::uint16_t, FloatTag> d16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, p))));
}

HWY_INLINE void store_bf16(Vec v, std::uint16_t* p) {
  const hn::RebindToUnsigned<FloatTag> du;
  const hn::RebindToSigned<FloatTag> di;
  const hn::Rebind<std::uint16_t, FloatTag> d16;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40));
  rounded = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, rounded)), d16, p);
}

HWY_INLINE Vec load_f16(const std::uint16_t* p) {
  const hn::Rebind<hwy::float16_t, FloatTag> d16;
  return hn::PromoteTo(FloatTag(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
}

HWY_INLINE void store_f16(Vec v, std::uint16_t* p) {
  const hn::Rebind<hwy::float16_t, FloatTag> d16;
  hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(p));
}

// --- rows ------------------------------------------------------------------------------------

template <class Load>
HWY_INLINE void widen(const std::uint16_t* from, std::int64_t stride, std::int64_t n, float* to,
                      Load load) {
  const FloatTag d;
  const std::int64_t step = lanes();
  HWY_ALIGN std::uint16_t part[HWY_MAX_BYTES / sizeof(float)] = {};
  HWY_ALIGN float wide[HWY_MAX_BYTES / sizeof(float)];
  for (std::int64_t i = 0; i < n; i += step) {
    const std::int64_t m = std::min(step, n - i);
    if (stride == 1 && m == step) {
      hn::StoreU(load(from + i), d, to + i);
      continue;
    }
    for (std::int64_t j = 0; j < m; ++j) part[j] = from[(i + j) * stride];
    hn::Store(load(part), d, wide);
    std::memcpy(to + i, wide, static_cast<std::size_t>(m) * sizeof(float));
  }
}

template <class Store>
HWY_INLINE void narrow(const float* from, std::int64_t n, std::uint16_t* to, std::int64_t stride,
                       Store store) {
  const FloatTag d;
  const std::int64_t step = lanes();
  HWY_ALIGN std::uint16_t part[HWY_MAX_BYTES / sizeof(float)];
  HWY_ALIGN float wide[HWY_MAX_BYTES / sizeof(float)] = {};
  for (std::int64_t i = 0; i < n; i += step) {
    const std::int64_t m = std::min(step, n - i);
    if (stride == 1 && m == step) {
      store(hn::LoadU(d, from + i), to + i);
      continue;
    }
    std::memcpy(wide, from + i, static_cast<std::size_t>(m) * sizeof(float));
    store(hn::Load(d, wide), part);
    for (std::int64_t j = 0; j < m; ++j) to[(i + j) * stride] = part[j];
  }
}

/// `n` elements of `view` from element `at` on, as float32: in place where they are that already,
/// else converted into `scratch`.
HWY_INLINE const float* read(const RowView& view, std::int64_t at, std::int64_t n, float* scratch) {
  if (view.dtype == DType::float32) {
    const float* from = static_cast<const float*>(view.data) + at;
    if (view.col_stride == 1) return from;
    for (std::int64_t i = 0; i < n; ++i) scratch[i] = from[i * view.col_stride];
    return scratch;
  }
  const std::uint16_t* from = static_cast<const std::uint16_t*>(view.data) + at;
  if (view.dtype == DType::bfloat16)
    widen(from, view.col_stride, n, scratch, [](const std::uint16_t* p) { return load_bf16(p); });
  else
    widen(from, view.col_stride, n, scratch, [](const std::uint16_t* p) { return load_f16(p); });
  return scratch;
}

/// Where to compute a row of float32 that write() then brings to `view`: the view's own memory
/// where it is float32 without gaps, else `scratch`.
HWY_INLINE float* write_buffer(const RowView& view, std::int64_t at, float* scratch) {
  const bool direct = view.dtype == DType::float32 && view.col_stride == 1;
  return direct ? static_cast<float*>(view.data) + at : scratch;
}

HWY_INLINE void write(const float* from, const RowView& view, std::int64_t at, std::int64_t n) {
  if (view.dtype == DType::float32) {
    float* to = static_cast<float*>(view.data) + at;
    if (to == from) return;
    for (std::int64_t i = 0; i < n; ++i) to[i * view.col_stride] = from[i];
    return;
  }
  std::uint16_t* to = static_cast<std::uint16_t*>(view.data) + at;
  if (view.dtype == DType::bfloat16)
    narrow(from, n, to, view.col_stride, [](Vec v, std::uint16_t* p) { store_bf16(v, p); });
  else
    narrow(from, n, to, view.col_stride, [](Vec v, std::uint16_t* p) { store_f16(v, p); });
}

/// values[i] = round(values[i]) to `dtype`, still float32.
HWY_INLINE void round_to(DType dtype, float* values, std::int64_t n) {
  if (dtype == DType::float32) return;
  HWY_ALIGN std::uint16_t part[HWY_MAX_BYTES / sizeof(float)];
  HWY_ALIGN float wide[HWY_MAX_BYTES / sizeof(float)] = {};
  const FloatTag d;
  const std::int64_t step = lanes();
  for (std::int64_t i = 0; i < n; i += step) {
    const std::size_t bytes = static_cast<std::size_t>(std::min(step, n - i)) * sizeof(float);
    std::memcpy(wide, values + i, bytes);
    if (dtype == DType::bfloat16) {
      store_bf16(hn::Load(d, wide), part);
      hn::Store(load_bf16(part), d, wide);
    } else {
      store_f16(hn::Load(d, wide), part);
      hn::Store(load_f16(part), d, wide);
    }
    std::memcpy(values + i, wide, bytes);
  }
}

// --- maps and sums ---------------------------------------------------------------------------

template <int kInputs>
struct Tail {  // the last n % lanes() elements of the inputs, padded with zeros
  HWY_ALIGN float in[kInputs][HWY_MAX_BYTES / sizeof(float)] = {};

  template <class... In>
  HWY_INLINE Tail(std::int64_t from, std::int64_t n, const In*... inputs) {
    int k = 0;
    ((std::memcpy(in[k++], inputs + from, static_cast<std::size_t>(n - from) * sizeof(float))),
     ...);
  }
};

template <class F, std::size_t... I>
HWY_INLINE Vec call_on_tail(F& f, const float (*in)[HWY_MAX_BYTES / sizeof(float)],
                            std::index_sequence<I...> /*unused*/) {
  return f(hn::Load(FloatTag(), in[I])...);
}

/// out[i] = f(in[i]...). out may be one of the inputs.
template <class F, class... In>
HWY_INLINE void map(std::int64_t n, float* out, F f, const In*... in) {
  const FloatTag d;
  const std::int64_t step = lanes();
  std::int64_t i = 0;
  for (; i + step <= n; i += step) hn::StoreU(f(hn::LoadU(d, in + i)...), d, out + i);
  if (i == n) return;
  const Tail<sizeof...(In)> tail(i, n, in...);
  HWY_ALIGN float result[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(call_on_tail(f, tail.in, std::index_sequence_for<In...>()), d, result);
  std::memcpy(out + i, result, static_cast<std::size_t>(n - i) * sizeof(float));
}

/// Sum of f(in[i]...) where f of zeros is zero. Four accumulators per lane: the order is fixed by
/// the vector width alone.
template <class F, class... In>
HWY_INLINE float sum(std::int64_t n, F f, const In*... in) {
  const FloatTag d;
  const std::int64_t step = lanes();
  Vec s0 = hn::Zero(d);
  Vec s1 = s0;
  Vec s2 = s0;
  Vec s3 = s0;
  std::int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    s0 = hn::Add(s0, f(hn::LoadU(d, in + i)...));
    s1 = hn::Add(s1, f(hn::LoadU(d, in + i + step)...));
    s2 = hn::Add(s2, f(hn::LoadU(d, in + i + 2 * step)...));
    s3 = hn::Add(s3, f(hn::LoadU(d, in + i + 3 * step)...));
  }
  for (; i + step <= n; i += step) s0 = hn::Add(s0, f(hn::LoadU(d, in + i)...));
  if (i < n) {
    const Tail<sizeof...(In)> tail(i, n, in...);
    s1 = hn::Add(s1, call_on_tail(f, tail.in, std::index_sequence_for<In...>()));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
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
