#include "tigon/ops/rms_norm.h"

#include <gtest/gtest.h>

#include "harness.h"
#include "tigon/host.h"

namespace tigon {
namespace {

using test::Buffer;

class RmsNorm : public testing::TestWithParam<std::tuple<DType, std::int64_t>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  std::int64_t cols() const { return std::get<1>(GetParam()); }
  /// Half a unit in the last place, of the type and of fp32 sums.
  float tolerance() const { return dtype() == DType::bfloat16 ? 1.0F / 256 : 1e-6F; }
};

TEST_P(RmsNorm, IsTheFormulaOnEveryTarget) {
  constexpr std::int64_t kRows = 5;
  Buffer x(dtype(), {kRows, cols()});
  Buffer weight(DType::float32, {cols()});
  x.randomise(1);
  weight.randomise(2);
  Host host;
  test::for_each_target([&] {
    Buffer y(dtype(), {kRows, cols()});
    Buffer rstd(DType::float32, {kRows});
    rms_norm_forward(host.context(), x.view(), weight.view(), {.eps = 1e-6F}, y.view(),
                     rstd.view());
    for (std::int64_t row = 0; row < kRows; ++row) {
      double squares = 0.0;
      for (std::int64_t c = 0; c < cols(); ++c)
        squares += static_cast<double>(x.at(row * cols() + c)) * x.at(row * cols() + c);
      const double expected = 1.0 / std::sqrt(squares / static_cast<double>(cols()) + 1e-6);
      ASSERT_NEAR(rstd.at(row), expected, 1e-6 * expected);
      for (std::int64_t c = 0; c < cols(); ++c) {
        const double exact = x.at(row * cols() + c) * expected * weight.at(c);
        ASSERT_NEAR(y.at(row * cols() + c), exact, tolerance() * std::abs(exact));
      }
    }
    y.expect_guards_intact();
    rstd.expect_guards_intact();
  });
}

TEST_P(RmsNorm, GradientIsTheFormulaOnEveryTarget) {
  constexpr std::int64_t kRows = 9;
  Buffer x(dtype(), {kRows, cols()});
  Buffer dy(dtype(), {kRows, cols()});
  Buffer weight(DType::float32, {cols()});
  x.randomise(3);
  dy.randomise(4);
  weight.randomise(5);
  Host host;
  test::for_each_target([&] {
    Buffer y(dtype(), {kRows, cols()});
    Buffer rstd(DType::float32, {kRows});
    Buffer dx(dtype(), {kRows, cols()});
    Buffer dweight(DType::float32, {cols()});
    rms_norm_forward(host.context(), x.view(), weight.view(), {}, y.view(), rstd.view());
    host.reserve(rms_norm_backward_workspace(host.context(), x.view(), dweight.view()));
    rms_norm_backward(host.context(), dy.view(), x.view(), weight.view(), rstd.view(), {},
                      dx.view(), dweight.view());
    std::vector<double> sums(static_cast<std::size_t>(cols()), 0.0);
    for (std::int64_t row = 0; row < kRows; ++row) {
      const auto value = [&](Buffer& b, std::int64_t c) -> double {
        return b.at(row * cols() + c);
      };
      const double r = rstd.at(row);
      double dot = 0.0;
      for (std::int64_t c = 0; c < cols(); ++c)
        dot += value(dy, c) * weight.at(c) * value(x, c) * r / static_cast<double>(cols());
      for (std::int64_t c = 0; c < cols(); ++c) {
        const double exact = r * (value(dy, c) * weight.at(c) - value(x, c) * r * dot);
        ASSERT_NEAR(value(dx, c), exact, tolerance() * std::abs(exact) + 1e-5);
        sums[static_cast<std::size_t>(c)] += value(dy, c) * value(x, c) * r;
      }
    }
    for (std::int64_t c = 0; c < cols(); ++c)
      ASSERT_NEAR(dweight.at(c), sums[static_cast<std::size_t>(c)], 1e-4);
    dx.expect_guards_intact();
    dweight.expect_guards_intact();
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, RmsNorm,
                         testing::Combine(testing::Values(DType::float32, DType::bfloat16),
                                          testing::Values(1, 3, 15, 16, 17, 64, 127, 1000)),
                         [](const auto& test) {
                           const bool narrow = std::get<0>(test.param) == DType::bfloat16;
                           return std::string(narrow ? "bfloat16_" : "float32_") +
                                  std::to_string(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace tigon
