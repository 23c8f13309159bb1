#include "base/rows.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "harness.h"

namespace tigon {
namespace {

Tensor strided(std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides) {
  Tensor t = contiguous(reinterpret_cast<void*>(0x1000), DType::float32, {}, {});
  t.rank = static_cast<int>(sizes.size());
  for (int i = 0; i < t.rank; ++i) {
    t.sizes[i] = sizes[i];
    t.strides[i] = strides[i];
  }
  return t;
}

std::vector<std::int64_t> offsets(const RowSpace& space, const RowView& view) {
  std::vector<std::int64_t> all;
  for (std::int64_t row = 0; row < space.count; ++row) all.push_back(view.offset(space, row));
  return all;
}

TEST(FoldRows, ContiguousTensorsAreOneAxis) {
  const Tensor t = strided({2, 3, 4, 5}, {60, 20, 5, 1});
  RowView a;
  RowView b;
  const RowSpace space = fold_rows({{&t, &a}, {&t, &b}});
  EXPECT_EQ(space.axes, 1);
  EXPECT_EQ(space.count, 24);
  EXPECT_EQ(a.strides[0], 5);
  EXPECT_EQ(b.offset(space, 23), 115);
}

TEST(FoldRows, WalksMemoryInOrderWhateverTheAxes) {
  const Tensor q = strided({2, 3, 4, 8}, {96, 8, 24, 1});  // [B, H, T, D], stored [B, T, H, D]
  RowView view;
  const RowSpace space = fold_rows({{&q, &view}});
  EXPECT_EQ(space.axes, 1);
  for (std::int64_t row = 0; row < space.count; ++row) EXPECT_EQ(view.offset(space, row), 8 * row);
}

TEST(FoldRows, TensorsOfOtherStridesStayTogether) {
  const Tensor q = strided({2, 3, 4, 8}, {96, 8, 24, 1});
  const Tensor plain = strided({2, 3, 4, 8}, {96, 32, 8, 1});
  RowView a;
  RowView b;
  const RowSpace space = fold_rows({{&q, &a}, {&plain, &b}});
  EXPECT_EQ(space.count, 24);
  std::set<std::pair<std::int64_t, std::int64_t>> got;
  for (std::int64_t row = 0; row < space.count; ++row)
    got.emplace(a.offset(space, row), b.offset(space, row));
  std::set<std::pair<std::int64_t, std::int64_t>> expected;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k)
        expected.emplace(96 * i + 8 * j + 24 * k, 96 * i + 32 * j + 8 * k);
  EXPECT_EQ(got, expected);
}

TEST(FoldRows, GapsAndExpandedAxesAreNotMerged) {
  const Tensor t = strided({2, 3, 4}, {0, 7, 1});
  RowView view;
  const RowSpace space = fold_rows({{&t, &view}});
  const std::vector<std::int64_t> all = offsets(space, view);
  EXPECT_EQ(std::multiset<std::int64_t>(all.begin(), all.end()),
            (std::multiset<std::int64_t>{0, 0, 7, 7, 14, 14}));
}

TEST(FoldRows, EmptyAndSingle) {
  const Tensor empty = strided({0, 3, 4}, {12, 4, 1});
  const Tensor single = strided({4}, {1});
  const Tensor absent;
  RowView a;
  RowView b;
  EXPECT_EQ(fold_rows({{&empty, &a}}).count, 0);
  const RowSpace space = fold_rows({{&single, &a}, {&absent, &b}});
  EXPECT_EQ(space.count, 1);
  EXPECT_EQ(a.offset(space, 0), 0);
  EXPECT_FALSE(b);
}

TEST(FoldRows, OffsetsPast32Bits) {
  const Tensor t = strided({3, std::int64_t{1} << 23, 256}, {std::int64_t{1} << 32, 256, 1});
  RowView view;
  const RowSpace space = fold_rows({{&t, &view}});
  EXPECT_EQ(view.offset(space, space.count - 1), (std::int64_t{2} << 32) + ((1LL << 23) - 1) * 256);
}

TEST(FoldRows, ValuesPerRowFollowTheirRow) {
  const Tensor q = strided({2, 3, 8}, {8, 16, 1});  // rows in memory: (0,0) (1,0) (0,1) ...
  const Tensor values = contiguous(reinterpret_cast<void*>(0x1000), DType::float32, {}, {6});
  const Tensor rows = per_row(values, q);
  RowView a;
  RowView b;
  const RowSpace space = fold_rows({{&q, &a}, {&rows, &b}});
  for (std::int64_t row = 0; row < space.count; ++row) {
    const std::int64_t i = a.offset(space, row) / 8 % 2;
    const std::int64_t j = a.offset(space, row) / 16;
    EXPECT_EQ(b.offset(space, row), 3 * i + j);
  }
}

TEST(IsVectorisable, WantsUnitColumnsAlignedRowsAndWholeVectors) {
  const auto vectorisable = [](const Tensor& t) {
    RowView view;
    const RowSpace space = fold_rows({{&t, &view}});
    return is_vectorisable(view, space, t.size(-1));
  };
  EXPECT_TRUE(vectorisable(strided({3, 8}, {8, 1})));
  EXPECT_FALSE(vectorisable(strided({3, 8}, {16, 2})));
  EXPECT_FALSE(vectorisable(strided({3, 8}, {9, 1})));
  EXPECT_FALSE(vectorisable(strided({3, 7}, {8, 1})));
  Tensor shifted = strided({3, 8}, {8, 1});
  shifted.data = static_cast<char*>(shifted.data) + 4;
  EXPECT_FALSE(vectorisable(shifted));
}

}  // namespace
}  // namespace tigon
