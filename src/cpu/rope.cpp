#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/rope.cpp"
#include "kernels/rope.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "cpu/foreach_target.h"  // before simd-inl.h
#include "cpu/kernel.h"
#include "cpu/scratch.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {
namespace {

// Tokens are taken in blocks: their angles are converted once for all heads and stay in L1, and
// either order of heads and tokens in memory is read in long runs.
inline constexpr std::int64_t kBlock = 16;

/// One token's rotation, float32 rows of `pairs` values padded to whole vectors:
/// y[a] = x[a] * cos_a - x[b] * sin_a, y[b] = x[b] * cos_b + x[a] * sin_b.
struct Rotation {
  const float* cos_a;
  const float* cos_b;
  const float* sin_a;
  const float* sin_b;

  HWY_INLINE Vec first(std::int64_t i, Vec a, Vec b) const {
    return hn::NegMulAdd(b, load(sin_a + i), hn::Mul(a, load(cos_a + i)));
  }
  HWY_INLINE Vec second(std::int64_t i, Vec a, Vec b) const {
    return hn::MulAdd(a, load(sin_b + i), hn::Mul(b, load(cos_b + i)));
  }
};

/// Where a kernel keeps the rotations of a block of tokens.
class Rotations {
 public:
  explicit Rotations(const Rope& p)
      : p_(p), rows_(4 * kBlock, p.pairs + 1), raw_(1, 2 * p.pairs + 1), negate_(p.transposed) {}

  Rotation prepare(std::int64_t b, std::int64_t t, int slot) const {
    float* rows[4];
    for (int i = 0; i < 4; ++i) rows[i] = rows_[4 * slot + i];
    const std::int64_t at = position(b, t);
    split(p_.cos, b * p_.cos.strides[0] + at * p_.cos.strides[1], 1.0F, rows[0], rows[1]);
    const float sign = negate_ ? -1.0F : 1.0F;
    split(p_.sin, b * p_.sin.strides[0] + at * p_.sin.strides[1], sign, rows[2], rows[3]);
    // The transpose takes the other feature's sine, and its negative.
    if (negate_) std::swap(rows[2], rows[3]);
    return {rows[0], rows[1], rows[2], rows[3]};
  }

 private:
  std::int64_t position(std::int64_t b, std::int64_t t) const {
    const RowView& ids = p_.position_ids;
    if (!ids) return t;
    return load_integer(ids, b * ids.strides[0] + t * ids.strides[1]);
  }

  void split(const RowView& table, std::int64_t at, float sign, float* a, float* b) const {
    const std::int64_t width = p_.per_pair ? p_.pairs : 2 * p_.pairs;
    const float* row = read(table, at, width, raw_[0]);
    if (p_.interleaved && !p_.per_pair) {
      for (std::int64_t i = 0; i < p_.pairs; ++i) a[i] = sign * row[2 * i];
      for (std::int64_t i = 0; i < p_.pairs; ++i) b[i] = sign * row[2 * i + 1];
    } else {
      const float* second = p_.per_pair ? row : row + p_.pairs;
      for (std::int64_t i = 0; i < p_.pairs; ++i) a[i] = sign * row[i];
      for (std::int64_t i = 0; i < p_.pairs; ++i) b[i] = sign * second[i];
    }
  }

  const Rope& p_;
  Scratch rows_;
  Scratch raw_;
  bool negate_;
};

// A vector of pairs of neighbours: the first of each in `a`, the second in `b`.
template <class T>
HWY_INLINE void load_pairs(const T* from, Vec& a, Vec& b) {
  if constexpr (std::is_same_v<T, float>) {
    hn::LoadInterleaved2(FloatTag(), from, a, b);
  } else {
    const hn::Rebind<std::uint16_t, FloatTag> d16;
    hn::Vec<decltype(d16)> first;
    hn::Vec<decltype(d16)> second;
    hn::LoadInterleaved2(d16, reinterpret_cast<const std::uint16_t*>(from), first, second);
    HWY_ALIGN T part[2][kMaxLanes];
    hn::Store(first, d16, reinterpret_cast<std::uint16_t*>(part[0]));
    hn::Store(second, d16, reinterpret_cast<std::uint16_t*>(part[1]));
    a = load(part[0]);
    b = load(part[1]);
  }
}

template <class T>
HWY_INLINE void store_pairs(Vec a, Vec b, T* to) {
  if constexpr (std::is_same_v<T, float>) {
    hn::StoreInterleaved2(a, b, FloatTag(), to);
  } else {
    const hn::Rebind<std::uint16_t, FloatTag> d16;
    HWY_ALIGN T part[2][kMaxLanes];
    store(a, part[0]);
    store(b, part[1]);
    hn::StoreInterleaved2(hn::Load(d16, reinterpret_cast<const std::uint16_t*>(part[0])),
                          hn::Load(d16, reinterpret_cast<const std::uint16_t*>(part[1])), d16,
                          reinterpret_cast<std::uint16_t*>(to));
  }
}

template <class T>
HWY_INLINE void rotate_neighbours(std::int64_t pairs, const Rotation& r, const T* x, T* y) {
  Vec a;
  Vec b;
  std::int64_t i = 0;
  for (; i + lanes() <= pairs; i += lanes()) {
    load_pairs(x + 2 * i, a, b);
    store_pairs(r.first(i, a, b), r.second(i, a, b), y + 2 * i);
  }
  if (i == pairs) return;
  const std::size_t bytes = static_cast<std::size_t>(2 * (pairs - i)) * sizeof(T);
  HWY_ALIGN T part[2 * kMaxLanes] = {};
  std::memcpy(part, x + 2 * i, bytes);
  load_pairs(part, a, b);
  store_pairs(r.first(i, a, b), r.second(i, a, b), part);
  std::memcpy(y + 2 * i, part, bytes);
}

template <class T>
HWY_INLINE void rotate_halves(std::int64_t pairs, const Rotation& r, const T* x, T* y) {
  std::int64_t i = 0;
  for (; i + lanes() <= pairs; i += lanes()) {
    const Vec a = load(x + i);
    const Vec b = load(x + pairs + i);
    store(r.first(i, a, b), y + i);
    store(r.second(i, a, b), y + pairs + i);
  }
  if (i == pairs) return;
  const std::int64_t rest = pairs - i;
  const Vec a = load_part(x + i, rest);
  const Vec b = load_part(x + pairs + i, rest);
  store_part(r.first(i, a, b), y + i, rest);
  store_part(r.second(i, a, b), y + pairs + i, rest);
}

template <class T>
void rotate_block(const Rope& p, const RopeHeads& heads, std::int64_t b, std::int64_t first,
                  std::int64_t count, const Rotation* rotations, const Scratch& scratch) {
  const bool heads_inside = heads.x.strides[2] <= heads.x.strides[1];
  const std::int64_t rotated = 2 * p.pairs;
  for (std::int64_t i = 0; i < count * heads.count; ++i) {
    const std::int64_t t = heads_inside ? i / heads.count : i % count;
    const std::int64_t h = heads_inside ? i % heads.count : i / count;
    const auto at = [&](const RowView& v) {
      return b * v.strides[0] + (first + t) * v.strides[1] + h * v.strides[2];
    };
    const T* x = read<T>(heads.x, at(heads.x), p.head_dim, scratch[0]);
    T* y = write_buffer<T>(heads.y, at(heads.y), scratch[1]);
    if (p.interleaved)
      rotate_neighbours(p.pairs, rotations[t], x, y);
    else
      rotate_halves(p.pairs, rotations[t], x, y);
    std::copy(x + rotated, x + p.head_dim, y + rotated);
    write(y, heads.y, at(heads.y), p.head_dim);
  }
}

void rotate(const Context& ctx, const Rope& p) {
  const std::int64_t blocks = (p.tokens + kBlock - 1) / kBlock;
  const std::int64_t token = (p.q.count + p.k.count) * p.head_dim;
  const std::int64_t grain = row_grain(token * std::min(kBlock, p.tokens));
  dispatch({&p.q.x, &p.q.y, &p.k.x, &p.k.y}, [&]<class T>() {
    ctx.parallel_for(p.batch * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
      const Rotations rotations(p);
      const Scratch scratch(2, p.head_dim + 1);
      Rotation block[kBlock];
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t b = i / blocks;
        const std::int64_t first = (i - b * blocks) * kBlock;
        const std::int64_t count = std::min(kBlock, p.tokens - first);
        for (int t = 0; t < count; ++t) block[t] = rotations.prepare(b, first + t, t);
        rotate_block<T>(p, p.q, b, first, count, block, scratch);
        rotate_block<T>(p, p.k, b, first, count, block, scratch);
      }
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tigon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon {
namespace {

TIGON_CPU_KERNEL(Rope, rotate);

}  // namespace
}  // namespace tigon
#endif  // HWY_ONCE
