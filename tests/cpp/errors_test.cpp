#include <gtest/gtest.h>

#include "harness.h"
#include "tigon/ops/add_rms_norm.h"
#include "tigon/ops/layer_norm.h"
#include "tigon/ops/rms_norm.h"
#include "tigon/ops/softmax.h"

// The sentences that a broken call gets, one of every kind; the tests in Python have the rest.
namespace tigon {
namespace {

using test::Buffer;
using test::error_of;

class Errors : public testing::Test {
 protected:
  std::string rms_norm(const Tensor& in, const Tensor& weight, const Tensor& out) {
    return error_of([&] { rms_norm_forward(ctx, in, weight, {}, out, {}); });
  }

  Context ctx;
  Buffer x{DType::float32, {2, 8}};
  Buffer y{DType::float32, {2, 8}};
};

TEST_F(Errors, Shape) {
  Buffer weight(DType::float32, {7});
  EXPECT_EQ(rms_norm(x.view(), weight.view(), y.view()),
            "rms_norm_forward: weight must be [8], got [7]");
  Buffer other(DType::float32, {2, 7});
  EXPECT_EQ(rms_norm(x.view(), {}, other.view()),
            "rms_norm_forward: y must have x's shape [2, 8], got [2, 7]");
}

TEST_F(Errors, Missing) {
  EXPECT_EQ(rms_norm({}, {}, y.view()), "rms_norm_forward: x is missing");
  EXPECT_EQ(
      error_of([&] { add_rms_norm_forward(ctx, x.view(), {}, {}, {}, y.view(), y.view(), {}); }),
      "add_rms_norm_forward: residual is missing");
}

TEST_F(Errors, Type) {
  Buffer integers(DType::int64, {2, 8});
  EXPECT_EQ(rms_norm(integers.view(), {}, y.view()),
            "rms_norm_forward: x must be float32, bfloat16 or float16, got int64");
}

TEST_F(Errors, Rank) {
  Buffer scalar(DType::float32, {});
  EXPECT_EQ(rms_norm(scalar.view(), {}, y.view()),
            "rms_norm_forward: x must have at least 1 axis, got []");
}

TEST_F(Errors, Device) {
  Tensor elsewhere = y.view();
  elsewhere.device = {DeviceType::cuda, 1};
  EXPECT_EQ(rms_norm(x.view(), {}, elsewhere), "rms_norm_forward: y must be on cpu, got cuda:1");
}

TEST_F(Errors, NegativeStride) {
  Tensor reversed = x.view();
  reversed.strides[1] = -1;
  EXPECT_EQ(rms_norm(reversed, {}, y.view()),
            "rms_norm_forward: x must not have negative strides, got -1 on axis 1");
}

TEST_F(Errors, SizeAndGaps) {
  Buffer rstd(DType::float32, {3});
  const auto forward = [&](const Tensor& t) {
    return error_of([&] { rms_norm_forward(ctx, x.view(), {}, {}, y.view(), t); });
  };
  EXPECT_EQ(forward(rstd.view()), "rms_norm_forward: rstd must have 2 elements, got [3]");
  Tensor gaps = rstd.view();
  gaps.sizes[0] = 2;
  gaps.strides[0] = 2;
  EXPECT_EQ(forward(gaps), "rms_norm_forward: rstd must be contiguous, got a strided [2]");
}

TEST_F(Errors, Workspace) {
  Buffer weight(DType::float32, {8});
  Buffer dweight(DType::float32, {8});
  Buffer rstd(DType::float32, {2});
  EXPECT_EQ(error_of([&] {
              rms_norm_backward(ctx, y.view(), x.view(), weight.view(), rstd.view(), {}, {},
                                dweight.view());
            }),
            "rms_norm_backward: workspace must be at least 32 bytes, got 0");
}

TEST_F(Errors, LayerNorm) {
  Buffer bias(DType::float32, {1, 8});
  EXPECT_EQ(
      error_of([&] { layer_norm_forward(ctx, x.view(), {}, bias.view(), {}, y.view(), {}, {}); }),
      "layer_norm_forward: bias must be [8], got [1, 8]");
  Buffer stats(DType::float32, {2});
  Buffer dweight(DType::float32, {8});
  EXPECT_EQ(error_of([&] {
              layer_norm_backward(ctx, y.view(), x.view(), {}, stats.view(), stats.view(), {},
                                  dweight.view(), {});
            }),
            "layer_norm_backward: dweight is wanted but weight is missing");
}

TEST_F(Errors, Softmax) {
  Buffer dx(DType::float32, {16});
  EXPECT_EQ(error_of([&] { softmax_backward(ctx, x.view(), y.view(), dx.view()); }),
            "softmax_backward: dx must have y's shape [2, 8], got [16]");
}

TEST_F(Errors, NothingIsWritten) {
  Buffer weight(DType::float32, {7});
  rms_norm(x.view(), weight.view(), y.view());
  for (std::int64_t i = 0; i < y.size(); ++i) EXPECT_TRUE(std::isnan(y.at(i)));
}

}  // namespace
}  // namespace tigon
