#include "ops/linear_head.h"

#include <algorithm>

#include "kernels/copy_rows.h"
#include "kernels/registry.h"
#include "kernels/select_rows.h"

namespace tigon {
namespace {

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

Tensor matrix(void* data, const Tensor& like, std::int64_t rows, std::int64_t cols,
              std::int64_t row_stride) {
  Tensor t = contiguous(data, like.dtype, like.device, {rows, cols});
  t.strides[0] = row_stride;
  return t;
}

Tensor transposed(Tensor t) {
  std::swap(t.sizes[0], t.sizes[1]);
  std::swap(t.strides[0], t.strides[1]);
  return t;
}

/// Rows `first` and on of a folded tensor whose rows lie at one distance.
Tensor rows_in_place(const RowView& view, const Tensor& of, std::int64_t first,
                     std::int64_t count) {
  const std::int64_t stride = view.strides[0];
  auto* data = static_cast<std::byte*>(view.data) + first * stride * size_of(view.dtype);
  return matrix(data, of, count, of.size(-1), stride);
}

/// What a matrix product can read or write as it is.
bool is_matrix(const RowView& view, const RowSpace& space, std::int64_t cols) {
  return space.axes == 1 && view.col_stride == 1 && view.strides[0] >= cols;
}

}  // namespace

RowView column_view(const Tensor& values, std::int64_t first) {
  if (!values) return {};
  auto* data = static_cast<std::byte*>(values.data) + first * size_of(values.dtype);
  return {.data = data, .dtype = values.dtype, .strides = {1}};
}

// Each chunk reads the weight and the partial sums of dweight once more, so few large chunks are
// fastest: half a GiB of logits on a GPU (products run at full speed from about a thousand rows
// on), 96 MiB on a CPU (49152 classes, H = 576, bf16: 256 rows 1.08 s, 1024 rows 0.9 s).
std::int64_t choose_chunk_rows(std::int64_t rows, std::int64_t vocab, std::int64_t element_bytes,
                               DeviceType device) {
  const bool cuda = device == DeviceType::cuda;
  const std::int64_t bytes = std::int64_t{cuda ? 512 : 96} << 20;
  const std::int64_t unit = cuda ? 256 : 64;
  const std::int64_t fitting = bytes / (vocab * element_bytes) / unit * unit;
  const std::int64_t chosen = std::clamp<std::int64_t>(fitting, 2 * unit, cuda ? 4096 : 1024);
  return std::clamp<std::int64_t>(rows, 1, chosen);
}

LinearHead::LinearHead(const Context& ctx, const char* op, const Arguments& args, Arena& arena)
    : ctx_(ctx),
      op_(op),
      args_(args),
      rows_(row_count(args.x)),
      vocab_(args.weight.size(0)),
      hidden_(args.weight.size(1)) {
  const DType type = args.x.dtype;
  chunk_rows_ = args.chunk_rows > 0
                    ? std::clamp<std::int64_t>(rows_, 1, args.chunk_rows)
                    : choose_chunk_rows(rows_, vocab_, size_of(type), ctx.device.type);
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
  x_chunk_ = arena.take(type, {chunk_rows_, hidden_});
  if (args.dx) dx_chunk_ = arena.take(type, {chunk_rows_, hidden_});
  const bool converts_bias = args.bias && (args.bias.dtype != type || !args.bias.is_contiguous());
  bias_ = converts_bias ? arena.take(type, {vocab_}) : args.bias;
  if (args.dbias) {
    dbias_sum_ = arena.take(DType::float32, {1, vocab_});
    ones_ = arena.take(type, {1, chunk_rows_});
  }
  const bool sums =
      args.dweight && args.sum_in_float32 && type != DType::float32 && rows_ > chunk_rows_;
  dweight_sum_ = sums ? arena.take(DType::float32, {vocab_, hidden_}) : args.dweight;
  // dweight is written when the last logits are done with: until then its memory can hold them.
  logits_ = sums && hidden_ >= chunk_rows_
                ? contiguous(args.dweight.data, type, ctx.device, {chunk_rows_, vocab_})
                : arena.take(type, {chunk_rows_, vocab_});
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
  if (count_ == 0) return;
  // Chunks of about the same size: a short last one would cost as much as a long one.
  const std::int64_t even = divide_up(count_, divide_up(count_, chunk_rows_));
  step_ = std::min(chunk_rows_, divide_up(even, 64) * 64);
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
             .to = {.data = to.data, .dtype = to.dtype, .strides = {to.stride(0)}},
             .fill = fill};
  if (from) {
    p.from = {.data = from.data, .dtype = from.dtype, .col_stride = from.stride(-1)};
    p.from.strides[0] = from.rank == 2 ? from.stride(0) : 0;
  }
  launch(ctx_, op_, p);
}

void LinearHead::begin() {
  const bool all = count_ == rows_;
  gathers_x_ = !all || !is_matrix(x_, space_, hidden_);
  scatters_dx_ = !all || !is_matrix(dx_, space_, hidden_);
  if (args_.dx && !all) {
    const CopyRows zeros{.count = rows_, .cols = hidden_, .to_rows = space_, .to = dx_};
    launch(ctx_, op_, zeros);
  }
  if (count_ == 0) return;
  if (bias_.data != args_.bias.data)
    copy_rows(1, args_.bias, matrix(bias_.data, bias_, 1, vocab_, vocab_));
  if (args_.dbias) copy_rows(1, {}, ones_, 1.0F);
}

LinearHead::Chunk LinearHead::make_chunk(std::int64_t first) {
  const std::int64_t count = std::min(step_, count_ - first);
  const auto* index = static_cast<const std::int64_t*>(selected_.data) + first;
  if (gathers_x_) {
    const CopyRows p{.count = count,
                     .cols = hidden_,
                     .from_rows = space_,
                     .from = x_,
                     .from_index = index,
                     .to_rows = one_axis(count),
                     .to = {.data = x_chunk_.data, .dtype = x_chunk_.dtype, .strides = {hidden_}}};
    launch(ctx_, op_, p);
  }
  const Tensor x = gathers_x_ ? matrix(x_chunk_.data, args_.x, count, hidden_, hidden_)
                              : rows_in_place(x_, args_.x, first, count);
  const Tensor logits = matrix(logits_.data, args_.x, count, vocab_, vocab_);
  ctx_.gemm(logits, x, transposed(args_.weight), bias_, 1.0F, bias_ ? 1.0F : 0.0F);

  Chunk chunk{.first = first, .rows = one_axis(count)};
  chunk.logits = {.data = logits.data, .dtype = logits.dtype, .strides = {vocab_}};
  chunk.labels = column_view(selected_label_, first);
  return chunk;
}

void LinearHead::take_gradient(const Chunk& chunk) {
  const std::int64_t count = chunk.rows.count;
  const Tensor dlogits = matrix(logits_.data, args_.x, count, vocab_, vocab_);
  const float beta = chunk.first > 0 ? 1.0F : 0.0F;
  const auto add = [&](const Tensor& sum, const Tensor& a, const Tensor& b) {
    ctx_.gemm(sum, a, b, beta != 0.0F ? sum : Tensor{}, 1.0F, beta);
  };
  if (args_.dbias) add(dbias_sum_, matrix(ones_.data, ones_, 1, count, count), dlogits);
  if (args_.dweight) {
    const Tensor x = gathers_x_ ? matrix(x_chunk_.data, args_.x, count, hidden_, hidden_)
                                : rows_in_place(x_, args_.x, chunk.first, count);
    add(dweight_sum_, transposed(dlogits), x);
  }
  if (!args_.dx) return;
  if (!scatters_dx_) {
    ctx_.gemm(rows_in_place(dx_, args_.dx, chunk.first, count), dlogits, args_.weight);
    return;
  }
  const Tensor dx = matrix(dx_chunk_.data, args_.dx, count, hidden_, hidden_);
  ctx_.gemm(dx, dlogits, args_.weight);
  const CopyRows p{.count = count,
                   .cols = hidden_,
                   .from_rows = one_axis(count),
                   .from = {.data = dx.data, .dtype = dx.dtype, .strides = {hidden_}},
                   .to_rows = space_,
                   .to = dx_,
                   .to_index = static_cast<const std::int64_t*>(selected_.data) + chunk.first};
  launch(ctx_, op_, p);
}

void LinearHead::finish() {
  const bool none = count_ == 0;
  if (args_.dweight && (none || dweight_sum_.data != args_.dweight.data))
    copy_rows(vocab_, none ? Tensor{} : dweight_sum_, args_.dweight);
  if (args_.dbias)
    copy_rows(1, none ? Tensor{} : dbias_sum_,
              matrix(args_.dbias.data, args_.dbias, 1, vocab_, vocab_));
}

}  // namespace tigon
