#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd_test.cpp"
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "cpu/foreach_target.h"  // before simd-inl.h
#include "cpu/simd-inl.h"
#include "harness.h"

// The CPU kernels' vocabulary, on every instruction set.
HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {
namespace {

void exp_of(const std::vector<float>& in, std::vector<float>& out) {
  map(static_cast<std::int64_t>(in.size()), out.data(), [](Vec v) { return exp(v); }, in.data());
}

void to_bf16(const std::vector<float>& in, std::vector<std::uint16_t>& out) {
  const auto identity = [](Vec v) { return v; };
  map(static_cast<std::int64_t>(in.size()), reinterpret_cast<Bf16*>(out.data()), identity,
      in.data());
}

/// Sums 1 over n elements: what lies in a tail's padding must not count.
float count_of(const std::vector<float>& in) {
  const auto one = [](Vec) { return hn::Set(FloatTag(), 1.0F); };
  return sum(static_cast<std::int64_t>(in.size()), one, in.data());
}

float max_of(const std::vector<float>& in) {
  return max(static_cast<std::int64_t>(in.size()), in.data());
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tigon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon {
namespace {

HWY_EXPORT(exp_of);
HWY_EXPORT(to_bf16);
HWY_EXPORT(count_of);
HWY_EXPORT(max_of);

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Simd, ExpIsRightToOneAndAHalfUlp) {
  std::vector<float> in;
  for (double v = -86.5; v < 88.72; v += 1e-3) in.push_back(static_cast<float>(v));
  std::vector<float> out(in.size());
  test::for_each_target([&] {
    HWY_DYNAMIC_DISPATCH(exp_of)(in, out);
    for (std::size_t i = 0; i < in.size(); ++i) {
      const double exact = std::exp(static_cast<double>(in[i]));
      const auto nearest = static_cast<float>(exact);
      const double ulp = std::nextafter(nearest, kInfinity) - nearest;
      ASSERT_LE(std::abs(out[i] - exact), 1.5 * ulp) << "exp(" << in[i] << ")";
    }
  });
}

TEST(Simd, ExpAtTheEnds) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> in{0.0F,   -0.0F,  89.0F,      200.0F, kInfinity,
                              -87.0F, -1e30F, -kInfinity, nan};
  std::vector<float> out(in.size());
  test::for_each_target([&] {
    HWY_DYNAMIC_DISPATCH(exp_of)(in, out);
    for (const int i : {0, 1}) EXPECT_EQ(out[i], 1.0F);
    for (const int i : {2, 3, 4}) EXPECT_EQ(out[i], kInfinity);
    for (const int i : {5, 6, 7}) EXPECT_EQ(out[i], 0.0F);
    EXPECT_TRUE(std::isnan(out[8]));
  });
}

TEST(Simd, Bfloat16RoundsToNearestEvenAndKeepsNan) {
  const std::vector<std::pair<std::uint32_t, std::uint16_t>> cases{
      {0x3F800000, 0x3F80}, {0x3F808000, 0x3F80}, {0x3F818000, 0x3F82}, {0x3F808001, 0x3F81},
      {0x7F7FFFFF, 0x7F80}, {0x7F800000, 0x7F80}, {0xFF800000, 0xFF80}, {0x7F800001, 0x7FC0},
      {0x7FFFFFFF, 0x7FFF}, {0xFFFFFFFF, 0xFFFF}, {0x80000000, 0x8000}, {0x00018000, 0x0002}};
  std::vector<float> in(cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i)
    std::memcpy(&in[i], &cases[i].first, sizeof(float));
  test::for_each_target([&] {
    std::vector<std::uint16_t> out(in.size());
    HWY_DYNAMIC_DISPATCH(to_bf16)(in, out);
    for (std::size_t i = 0; i < cases.size(); ++i)
      EXPECT_EQ(out[i], cases[i].second) << "case " << i;
  });
}

TEST(Simd, ReductionsEndWithTheLastElement) {
  test::for_each_target([&] {
    for (std::size_t n = 0; n < 150; ++n) {
      const std::vector<float> in(n, -3.0F);
      ASSERT_EQ(HWY_DYNAMIC_DISPATCH(count_of)(in), static_cast<float>(n));
      ASSERT_EQ(HWY_DYNAMIC_DISPATCH(max_of)(in), n == 0 ? -kInfinity : -3.0F);
    }
  });
}

}  // namespace
}  // namespace tigon
#endif  // HWY_ONCE
