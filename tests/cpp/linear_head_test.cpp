#include "ops/linear_head.h"

#include <gtest/gtest.h>

#include "harness.h"
#include "tigon/host.h"
#include "tigon/ops/linear_cross_entropy.h"

namespace tigon {
namespace {

using test::Buffer;
using test::for_each_target;

constexpr DeviceType kCpu = DeviceType::cpu;
constexpr DeviceType kCuda = DeviceType::cuda;

HeadSizes frozen(std::int64_t rows, std::int64_t vocab, std::int64_t element_bytes,
                 DeviceType device, bool low_memory = false) {
  return {.rows = rows,
          .hidden = 4096,
          .vocab = vocab,
          .element_bytes = element_bytes,
          .device = device,
          .sum_in_float32 = true,
          .low_memory = low_memory};
}

HeadSizes trained(std::int64_t rows, std::int64_t hidden, std::int64_t vocab,
                  bool low_memory = false, bool sum_in_float32 = true) {
  return {.rows = rows,
          .hidden = hidden,
          .vocab = vocab,
          .element_bytes = 2,
          .device = kCuda,
          .trained = true,
          .sum_in_float32 = sum_in_float32,
          .low_memory = low_memory};
}

TEST(ChunkRows, HoldLittleAndAreNeverTiny) {
  for (const DeviceType device : {kCpu, kCuda}) {
    for (const bool low : {false, true}) {
      const std::int64_t least = low ? 64 : device == kCuda ? 512 : 128;
      const std::int64_t mib = device == kCuda ? (low ? 64 : 256) : (low ? 24 : 96);
      for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1} << 40}) {
        for (const std::int64_t vocab : {1, 50257, 128256, 262144, 1 << 30}) {
          const std::int64_t chosen = choose_chunk_rows(frozen(rows, vocab, 2, device, low));
          EXPECT_GE(chosen, std::min(std::max<std::int64_t>(rows, 1), least));
          EXPECT_LE(chosen, std::max<std::int64_t>(rows, 1));
          EXPECT_TRUE(chosen <= least || chosen * vocab * 2 <= mib << 20);
        }
      }
    }
  }
}

TEST(ChunkRows, Choices) {
  EXPECT_EQ(choose_chunk_rows(frozen(8192, 128256, 2, kCuda)), 1024);
  EXPECT_EQ(choose_chunk_rows(frozen(65536, 32000, 2, kCuda)), 4096);
  EXPECT_EQ(choose_chunk_rows(frozen(8192, 262144, 2, kCuda)), 512);
  EXPECT_EQ(choose_chunk_rows(frozen(100, 128256, 2, kCuda)), 100);
  EXPECT_EQ(choose_chunk_rows(frozen(4096, 49152, 4, kCpu)), 512);
  EXPECT_EQ(choose_chunk_rows(frozen(4096, 49152, 2, kCpu)), 1024);
  EXPECT_EQ(choose_chunk_rows(frozen(8192, 128256, 2, kCuda, true)), 256);
  HeadSizes loss_only = frozen(8192, 128256, 2, kCuda);
  loss_only.loss_only = true;
  EXPECT_EQ(choose_chunk_rows(loss_only), 2048);
}

/// All rows at once while their logits take no more than a float32 sum of dweight; then as many as
/// dweight's memory holds.
TEST(ChunkRows, OfATrainedHead) {
  EXPECT_EQ(choose_chunk_rows(trained(8192, 4096, 128256)), 8192);
  EXPECT_EQ(choose_chunk_rows(trained(8193, 4096, 128256)), 4096);
  EXPECT_EQ(choose_chunk_rows(trained(65536, 4096, 128256)), 4096);
  EXPECT_EQ(choose_chunk_rows(trained(65536, 1024, 128256)), 2048);
  EXPECT_EQ(choose_chunk_rows(trained(8192, 4096, 128256, false, false)), 2048);
  EXPECT_EQ(choose_chunk_rows(trained(8192, 4096, 128256, true, false)), 768);
  EXPECT_EQ(choose_chunk_rows(trained(0, 4096, 128256)), 1);
}

TEST(TileCols, Choices) {
  const auto chosen = [](const HeadSizes& s) {
    return choose_tile_cols(s, choose_chunk_rows(s), false);
  };
  EXPECT_EQ(chosen(trained(8192, 4096, 128256, true)), 4032);  // 32 tiles of 63 MiB
  EXPECT_EQ(chosen(trained(65536, 4096, 128256, true)), 2048);
  EXPECT_EQ(chosen(trained(1 << 20, 4096, 100, true)), 128);  // one
  EXPECT_EQ(choose_tile_cols(trained(91, 40, 257, true), 16, true), 48);
  EXPECT_EQ(choose_tile_cols(trained(91, 40, 257, true), 1, true), 8);
}

/// 7 rows, two of them ignored, in chunks of 3 or as many logits in tiles of 8 columns, through
/// tigon::Host: loss and gradients against loops in double.
void without_pytorch(DType dtype, HeadMemory memory, double tolerance) {
  constexpr std::int64_t rows = 7;
  constexpr std::int64_t hidden = 5;
  constexpr std::int64_t vocab = 20;
  const std::int64_t label[rows] = {3, -100, 0, 19, 7, -100, 7};
  Buffer x(dtype, {rows, hidden});
  Buffer weight(dtype, {vocab, hidden});
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
    Buffer dx(dtype, {rows, hidden});
    Buffer dweight(dtype, {vocab, hidden});
    const LinearCrossEntropyInputs in{
        .x = x.view(),
        .weight = weight.view(),
        .labels = contiguous(const_cast<std::int64_t*>(label), DType::int64, {}, {rows})};
    const LinearCrossEntropyOptions options{.memory = memory, .chunk_rows = 3};
    const LinearCrossEntropyOutputs out{
        .loss = loss.view(), .dx = dx.view(), .dweight = dweight.view()};
    host.reserve(linear_cross_entropy_forward_workspace(host.context(), in, options, out));
    linear_cross_entropy_forward(host.context(), in, options, out);
    EXPECT_NEAR(loss.at(0), expected, tolerance);
    for (std::int64_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(dx.at(i), expected_dx[i], tolerance);
    for (std::int64_t i = 0; i < dweight.size(); ++i)
      EXPECT_NEAR(dweight.at(i), expected_dweight[i], tolerance);
    dx.expect_guards_intact();
    dweight.expect_guards_intact();
  });
}

TEST(LinearCrossEntropy, WithoutPyTorch) {
  without_pytorch(DType::float32, HeadMemory::fast, 1e-5);
  without_pytorch(DType::float32, HeadMemory::low, 1e-5);
}

/// Logits of size 4 are rounded by up to 2^-7.
TEST(LinearCrossEntropy, WithoutPyTorchInTiles) {
  without_pytorch(DType::bfloat16, HeadMemory::fast, 0x1p-6);
  without_pytorch(DType::bfloat16, HeadMemory::low, 0x1p-6);
}

}  // namespace
}  // namespace tigon
