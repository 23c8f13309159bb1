#include <algorithm>

#include "ops/linear_head.h"
#include "ops/matrix.h"

// Chunks of rows: one product each for their logits, dx and dweight, whose partial sums grow from
// chunk to chunk.
namespace tigon {
namespace {

// Rows of dx that are made at a time where all of x lies gathered in dx's memory.
constexpr std::int64_t kPieceRows = 2048;

}  // namespace

void LinearHead::lay_out_chunks(Arena& arena, bool sums) {
  const DType type = args_.x.dtype;
  // The rows of x and of dx share a place, since dx is the last product of a chunk. A single chunk
  // of many rows finds one for x that costs nothing.
  const bool in_dx = rows_ <= chunk_rows_ && rows_ > kPieceRows && has_room_in_dx();
  dx_rows_ = arena.take(type, {in_dx ? kPieceRows : chunk_rows_, hidden_});
  gathered_ = in_dx ? matrix(args_.dx.data, args_.dx, rows_, hidden_, hidden_) : dx_rows_;
  dweight_sum_ = sums ? arena.take(DType::float32, {vocab_, hidden_}) : args_.dweight;
  // dweight is written when the last logits are done with: until then its memory can hold them.
  logits_ = sums && hidden_ >= chunk_rows_
                ? contiguous(args_.dweight.data, type, ctx_.device, {chunk_rows_, vocab_})
                : arena.take(type, {chunk_rows_, vocab_});
}

void LinearHead::begin_chunks() {
  begin();
  if (count_ == 0 || gathered_.data == dx_rows_.data) zero_ignored_dx();
  if (count_ == 0) return;
  // Chunks of about the same size: a short last one would cost as much as a long one.
  const auto divide_up = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  const std::int64_t even = divide_up(count_, divide_up(count_, chunk_rows_));
  step_ = std::min(chunk_rows_, divide_up(even, 64) * 64);
}

LinearHead::Part LinearHead::make_chunk(std::int64_t first) const {
  const std::int64_t count = std::min(step_, count_ - first);
  gather_x(first, count);
  const Tensor logits = rows_of_matrix(logits_, 0, count);
  ctx_.gemm(logits, x_rows(first, count), transposed(args_.weight), bias_, 1.0F,
            bias_ ? 1.0F : 0.0F);
  return {.first = first,
          .cols = vocab_,
          .rows = one_axis(count),
          .logits = row_view(logits),
          .dlogits = row_view(logits),
          .labels = column_view(selected_label_, first)};
}

void LinearHead::take_chunk_gradient(const Part& chunk) const {
  const std::int64_t count = chunk.rows.count;
  const Tensor dlogits = rows_of_matrix(logits_, 0, count);
  const float beta = chunk.first > 0 ? 1.0F : 0.0F;
  const auto add = [&](const Tensor& sum, const Tensor& a, const Tensor& b) {
    ctx_.gemm(sum, a, b, beta != 0.0F ? sum : Tensor{}, 1.0F, beta);
  };
  if (args_.dbias) add(dbias_sum_, matrix(ones_.data, ones_, 1, count, count), dlogits);
  if (args_.dweight) add(dweight_sum_, transposed(dlogits), x_rows(chunk.first, count));
  if (!args_.dx) return;
  if (!scatters_dx_) {
    ctx_.gemm(rows_in_place(dx_, args_.dx, chunk.first, count), dlogits, args_.weight);
    return;
  }
  if (gathered_.data != dx_rows_.data) zero_ignored_dx();  // x is done with
  for (std::int64_t at = 0; at < count; at += dx_rows_.size(0)) {
    const std::int64_t piece = std::min(dx_rows_.size(0), count - at);
    const Tensor dx = rows_of_matrix(dx_rows_, 0, piece);
    ctx_.gemm(dx, rows_of_matrix(dlogits, at, piece), args_.weight);
    scatter_dx(chunk.first + at, dx);
  }
}

void LinearHead::finish_chunks() const {
  const bool none = count_ == 0;
  if (args_.dweight && (none || dweight_sum_.data != args_.dweight.data))
    copy_rows(vocab_, none ? Tensor{} : dweight_sum_, args_.dweight);
  finish_dbias();
}

}  // namespace tigon
