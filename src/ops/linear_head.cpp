#include "ops/linear_head.h"

#include <algorithm>

#include "kernels/copy_rows.h"
#include "kernels/registry.h"
#include "kernels/select_rows.h"
#include "ops/matrix.h"

namespace tigon {

RowView column_view(const Tensor& values, std::int64_t first) {
  if (!values) return {};
  auto* data = static_cast<std::byte*>(values.data) + first * size_of(values.dtype);
  return {.data = data, .dtype = values.dtype, .strides = {1}};
}

LinearHead::LinearHead(const Context& ctx, const char* op, const Arguments& args, Arena& arena)
    : ctx_(ctx),
      op_(op),
      args_(args),
      rows_(row_count(args.x)),
      vocab_(args.weight.size(0)),
      hidden_(args.weight.size(1)) {
  const DType type = args.x.dtype;
  const HeadSizes sizes{.rows = rows_,
                        .hidden = hidden_,
                        .vocab = vocab_,
                        .element_bytes = size_of(type),
                        .device = ctx.device.type,
                        .trained = bool(args.dweight),
                        .sum_in_float32 = args.sum_in_float32,
                        .low_memory = args.low_memory,
                        .loss_only = !args.dx && !args.dweight && !args.dbias};
  const bool given = args.chunk_rows > 0;
  chunk_rows_ =
      given ? std::clamp<std::int64_t>(rows_, 1, args.chunk_rows) : choose_chunk_rows(sizes);
  const bool sums = sizes.has_sums() && rows_ > chunk_rows_;
  if (sums && args.low_memory) tile_cols_ = choose_tile_cols(sizes, chunk_rows_, given);

  const Tensor label_rows = column(args.labels, args.x);
  space_ = fold_rows({{&args_.x, &x_}, {&args_.dx, &dx_}, {&label_rows, &labels_}});
  if (space_.axes == 0) {  // one row
    space_.axes = 1;
    space_.sizes[0] = 1;
    x_.strides[0] = dx_.strides[0] = hidden_;
  }

  selected_ = arena.take(DType::int64, {rows_});
  selected_label_ = arena.take(DType::int64, {rows_});
  device_count_ = arena.take(DType::int64, {1});
  const bool converts_bias = args.bias && (args.bias.dtype != type || !args.bias.is_contiguous());
  bias_ = converts_bias ? arena.take(type, {vocab_}) : args.bias;
  if (args.dbias) {
    dbias_sum_ = arena.take(DType::float32, {1, vocab_});
    ones_ = arena.take(type, {1, in_tiles() ? rows_ : chunk_rows_});
  }
  if (in_tiles())
    lay_out_tiles(arena);
  else
    lay_out_chunks(arena, sums);
}

void LinearHead::select() {
  SelectRows p{.rows = space_,
               .labels = labels_,
               .ignore_index = args_.ignore_index,
               .selected = static_cast<std::int64_t*>(selected_.data),
               .selected_label = static_cast<std::int64_t*>(selected_label_.data),
               .device_count = static_cast<std::int64_t*>(device_count_.data),
               .count = &count_};
  if (rows_ > 0) launch(ctx_, op_, p);
}

void LinearHead::gather(const Tensor& all, const Tensor& counted) const {
  if (!all || count_ == 0) return;
  CopyRows p{.count = count_,
             .cols = 1,
             .from_index = static_cast<const std::int64_t*>(selected_.data),
             .to_rows = one_axis(count_),
             .to = column_view(counted)};
  RowView x;
  const Tensor values = column(all, args_.x);
  p.from_rows = fold_rows({{&args_.x, &x}, {&values, &p.from}});
  launch(ctx_, op_, p);
}

void LinearHead::scatter(const Tensor& counted, const Tensor& all) const {
  if (!all || rows_ == 0) return;
  CopyRows p{.count = rows_, .cols = 1};
  RowView x;
  const Tensor values = per_row(all, args_.x);
  p.to_rows = fold_rows({{&args_.x, &x}, {&values, &p.to}});
  if (count_ < rows_) launch(ctx_, op_, p);
  if (count_ == 0) return;
  p.count = count_;
  p.to_index = static_cast<const std::int64_t*>(selected_.data);
  p.from_rows = one_axis(count_);
  p.from = column_view(counted);
  launch(ctx_, op_, p);
}

/// Between matrices, or from a vector to a matrix of one row; an absent `from` is `fill`.
void LinearHead::copy_rows(std::int64_t count, const Tensor& from, const Tensor& to,
                           float fill) const {
  CopyRows p{.count = count,
             .cols = to.size(1),
             .from_rows = one_axis(count),
             .to_rows = one_axis(count),
             .to = row_view(to),
             .fill = fill};
  if (from) {
    p.from = {.data = from.data, .dtype = from.dtype, .col_stride = from.stride(-1)};
    p.from.strides[0] = from.rank == 2 ? from.stride(0) : 0;
  }
  launch(ctx_, op_, p);
}

/// What all products need, whatever part of the logits they make.
void LinearHead::begin() {
  gathers_x_ = count_ < rows_ || !is_matrix(x_, space_, hidden_);
  scatters_dx_ = count_ < rows_ || !is_matrix(dx_, space_, hidden_);
  if (count_ == 0) return;
  if (bias_.data != args_.bias.data)
    copy_rows(1, args_.bias, matrix(bias_.data, bias_, 1, vocab_, vocab_));
  if (args_.dbias) copy_rows(1, {}, ones_, 1.0F);
}

/// Whether dx is a block of memory with room for all rows of x, until dx itself is made.
bool LinearHead::has_room_in_dx() const {
  return args_.dx && (args_.dx.is_contiguous() ||
                      (is_matrix(dx_, space_, hidden_) && dx_.strides[0] == hidden_));
}

void LinearHead::gather_x(std::int64_t first, std::int64_t count) const {
  if (!gathers_x_) return;
  const CopyRows p{.count = count,
                   .cols = hidden_,
                   .from_rows = space_,
                   .from = x_,
                   .from_index = static_cast<const std::int64_t*>(selected_.data) + first,
                   .to_rows = one_axis(count),
                   .to = row_view(gathered_)};
  launch(ctx_, op_, p);
}

/// The rows that gather_x had last.
Tensor LinearHead::x_rows(std::int64_t first, std::int64_t count) const {
  return gathers_x_ ? rows_of_matrix(gathered_, 0, count)
                    : rows_in_place(x_, args_.x, first, count);
}

void LinearHead::zero_ignored_dx() const {
  if (!args_.dx || count_ == rows_) return;
  const CopyRows zeros{.count = rows_, .cols = hidden_, .to_rows = space_, .to = dx_};
  launch(ctx_, op_, zeros);
}

void LinearHead::scatter_dx(std::int64_t first, const Tensor& from) const {
  const CopyRows p{.count = from.size(0),
                   .cols = hidden_,
                   .from_rows = one_axis(from.size(0)),
                   .from = row_view(from),
                   .to_rows = space_,
                   .to = dx_,
                   .to_index = static_cast<const std::int64_t*>(selected_.data) + first};
  launch(ctx_, op_, p);
}

void LinearHead::finish_dbias() const {
  if (!args_.dbias) return;
  const Tensor dbias = matrix(args_.dbias.data, args_.dbias, 1, vocab_, vocab_);
  copy_rows(1, count_ == 0 ? Tensor{} : dbias_sum_, dbias);
}

}  // namespace tigon
