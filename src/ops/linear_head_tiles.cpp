#include <algorithm>

#include "ops/linear_head.h"
#include "ops/matrix.h"

// Tiles of columns: each one's part of dweight is one product over all rows, written once, and dx
// grows from tile to tile in float32. A tile's gradient needs the sums over all tiles, so that
// logits are made twice, but for those that are still there: the last tile's, and those that fit
// where dweight will be.
//
// In dweight's memory, the logits of tile i start at element i * max(rows, H) * tile_cols, and its
// part of dweight at i * H * tile_cols, never later. Tiles are taken in order and a gradient is
// written to logits_, so that where a product writes, all logits are done with. The last tile goes
// first, since its logits are in logits_; those that are kept end before its part of dweight.
namespace tigon {

void LinearHead::lay_out_tiles(Arena& arena) {
  const DType type = args_.x.dtype;
  gathered_ = has_room_in_dx() ? matrix(args_.dx.data, args_.dx, rows_, hidden_, hidden_)
                               : arena.take(type, {rows_, hidden_});
  if (args_.dx) dx_sum_ = arena.take(DType::float32, {rows_, hidden_});
  logits_ = arena.take(type, {rows_, tile_cols_});
}

void LinearHead::begin_tiles() {
  begin();
  if (count_ > 0) gather_x(0, count_);
}

void LinearHead::keep_tiles() {
  const std::int64_t last = tiles() - 1;
  kept_ = std::min(last, last * tile_cols_ * hidden_ / slot_elements());
}

/// Where a tile's logits are made.
Tensor LinearHead::place_of(std::int64_t tile) const {
  const std::int64_t cols = std::min(tile_cols_, vocab_ - tile * tile_cols_);
  // A narrower last tile keeps the rows' alignment, except from a bias: the epilogue that adds it
  // before the only rounding takes no rows with gaps.
  Tensor place = matrix(logits_.data, logits_, count_, cols, bias_ ? cols : tile_cols_);
  if (tile < kept_)
    place.data = static_cast<std::byte*>(args_.dweight.data) +
                 tile * slot_elements() * size_of(logits_.dtype);
  return place;
}

LinearHead::Part LinearHead::part_of(std::int64_t tile) const {
  const Tensor logits = place_of(tile);
  Part part{.first = tile * tile_cols_,
            .cols = logits.size(1),
            .rows = one_axis(count_),
            .logits = row_view(logits),
            .labels = column_view(selected_label_)};
  part.dlogits = part.logits;
  part.dlogits.data = logits_.data;
  return part;
}

LinearHead::Part LinearHead::make_tile(std::int64_t tile) const {
  const Part part = part_of(tile);
  Tensor bias = bias_;
  if (bias) {
    bias.data = static_cast<std::byte*>(bias.data) + part.first * size_of(bias.dtype);
    bias.sizes[0] = part.cols;
  }
  ctx_.gemm(place_of(tile), x_rows(0, count_),
            transposed(rows_of_matrix(args_.weight, part.first, part.cols)), bias, 1.0F,
            bias ? 1.0F : 0.0F);
  return part;
}

void LinearHead::take_tile_gradient(const Part& tile, bool first) const {
  const Tensor dlogits = matrix(logits_.data, logits_, count_, tile.cols, tile.dlogits.strides[0]);
  if (args_.dbias) {
    float* sums = static_cast<float*>(dbias_sum_.data) + tile.first;
    ctx_.gemm(matrix(sums, dbias_sum_, 1, tile.cols, tile.cols),
              matrix(ones_.data, ones_, 1, count_, count_), dlogits);
  }
  ctx_.gemm(rows_of_matrix(args_.dweight, tile.first, tile.cols), transposed(dlogits),
            x_rows(0, count_));
  if (!args_.dx) return;
  const Tensor sum = rows_of_matrix(dx_sum_, 0, count_);
  ctx_.gemm(sum, dlogits, rows_of_matrix(args_.weight, tile.first, tile.cols),
            first ? Tensor{} : sum, 1.0F, first ? 0.0F : 1.0F);
}

void LinearHead::finish_tiles() const {
  zero_ignored_dx();
  if (count_ == 0)
    copy_rows(vocab_, {}, args_.dweight);
  else if (args_.dx)
    scatter_dx(0, rows_of_matrix(dx_sum_, 0, count_));
  finish_dbias();
}

}  // namespace tigon
