#include "ops/linear_head.h"

#include <gtest/gtest.h>

#include "harness.h"
#include "tigon/host.h"
#include "tigon/ops/linear_cross_entropy.h"

namespace tigon {
namespace {

using test::Buffer;
using test::for_each_target;

TEST(ChunkRows, HoldLittleAndAreNeverTiny) {
  for (const DeviceType device : {DeviceType::cpu, DeviceType::cuda}) {
    const std::int64_t least = device == DeviceType::cuda ? 512 : 128;
    const std::int64_t bytes = std::int64_t{device == DeviceType::cuda ? 512 : 96} << 20;
    for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1} << 40}) {
      for (const std::int64_t vocab : {1, 50257, 128256, 262144, 1 << 30}) {
        const std::int64_t chosen = choose_chunk_rows(rows, vocab, 2, device);
        EXPECT_GE(chosen, std::min(std::max<std::int64_t>(rows, 1), least));
        EXPECT_LE(chosen, std::max<std::int64_t>(rows, 1));
        EXPECT_TRUE(chosen <= least || chosen * vocab * 2 <= bytes);
      }
    }
  }
}

TEST(ChunkRows, Choices) {
  EXPECT_EQ(choose_chunk_rows(8192, 128256, 2, DeviceType::cuda), 2048);
  EXPECT_EQ(choose_chunk_rows(65536, 32000, 2, DeviceType::cuda), 4096);
  EXPECT_EQ(choose_chunk_rows(8192, 262144, 2, DeviceType::cuda), 1024);
  EXPECT_EQ(choose_chunk_rows(100, 128256, 2, DeviceType::cuda), 100);
  EXPECT_EQ(choose_chunk_rows(4096, 49152, 4, DeviceType::cpu), 512);
  EXPECT_EQ(choose_chunk_rows(4096, 49152, 2, DeviceType::cpu), 1024);
}

/// 7 rows, two of them ignored, in chunks of 3, through tigon::Host: loss and gradients against
/// loops in double.
TEST(LinearCrossEntropy, WithoutPyTorch) {
  constexpr std::int64_t rows = 7;
  constexpr std::int64_t hidden = 5;
  constexpr std::int64_t vocab = 11;
  const std::int64_t label[rows] = {3, -100, 0, 10, 7, -100, 7};
  Buffer x(DType::float32, {rows, hidden});
  Buffer weight(DType::float32, {vocab, hidden});
  x.randomise(1);
  weight.randomise(2);

  double expected = 0;
  double expected_dx[rows * hidden] = {};
  double expected_dweight[vocab * hidden] = {};
  for (std::int64_t i = 0; i < rows; ++i) {
    if (label[i] == -100) continue;
    double e[vocab];
    double total = 0;
    for (std::int64_t v = 0; v < vocab; ++v) {
      double z = 0;
      for (std::int64_t k = 0; k < hidden; ++k)
        z += double{x.at(i * hidden + k)} * weight.at(v * hidden + k);
      e[v] = std::exp(z);
      total += e[v];
    }
    expected -= std::log(e[label[i]] / total) / 5;
    for (std::int64_t v = 0; v < vocab; ++v) {
      const double g = (e[v] / total - (v == label[i] ? 1 : 0)) / 5;
      for (std::int64_t k = 0; k < hidden; ++k) {
        expected_dx[i * hidden + k] += g * weight.at(v * hidden + k);
        expected_dweight[v * hidden + k] += g * x.at(i * hidden + k);
      }
    }
  }

  Host host;
  for_each_target([&] {
    Buffer loss(DType::float32, {1});
    Buffer dx(DType::float32, {rows, hidden});
    Buffer dweight(DType::float32, {vocab, hidden});
    const LinearCrossEntropyInputs in{
        .x = x.view(),
        .weight = weight.view(),
        .labels = contiguous(const_cast<std::int64_t*>(label), DType::int64, {}, {rows})};
    const LinearCrossEntropyOptions options{.chunk_rows = 3};
    const LinearCrossEntropyOutputs out{
        .loss = loss.view(), .dx = dx.view(), .dweight = dweight.view()};
    host.reserve(linear_cross_entropy_forward_workspace(host.context(), in, options, out));
    linear_cross_entropy_forward(host.context(), in, options, out);
    EXPECT_NEAR(loss.at(0), expected, 1e-5);
    for (std::int64_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(dx.at(i), expected_dx[i], 1e-5);
    for (std::int64_t i = 0; i < dweight.size(); ++i)
      EXPECT_NEAR(dweight.at(i), expected_dweight[i], 1e-5);
    dx.expect_guards_intact();
    dweight.expect_guards_intact();
  });
}

}  // namespace
}  // namespace tigon
