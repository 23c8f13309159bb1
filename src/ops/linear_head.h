#pragma once

#include <cstdint>

#include "base/arena.h"
#include "base/rows.h"
#include "tigon/context.h"
#include "tigon/tensor.h"

namespace tigon {

/// How many rows of logits are held at a time.
std::int64_t choose_chunk_rows(std::int64_t rows, std::int64_t vocab, std::int64_t element_bytes,
                               DeviceType device);

/// A contiguous [rows] tensor as one value per row, from row `first` on; empty when absent.
RowView column_view(const Tensor& values, std::int64_t first = 0);

/// Logits = x @ weight^T + bias of the rows that count, a chunk at a time, and back from their
/// gradient to those of x, weight and bias: what losses over a vocabulary share that must never
/// hold all logits. Rows with an ignored label are in no product, and their dx is 0.
///
///   Arena arena(ctx);
///   LinearHead head(ctx, op, args, arena);    // lays out its workspace
///   head.select();
///   head.for_each_chunk([&](const LinearHead::Chunk& chunk) { /* loss of chunk.logits */ });
class LinearHead {
 public:
  struct Arguments {
    Tensor x;       // [..., H]
    Tensor weight;  // [V, H] of x's type
    Tensor bias;    // [V], or absent
    Tensor labels;  // [...]
    std::int64_t ignore_index = 0;
    std::int64_t chunk_rows = 0;  // 0: chosen
    bool sum_in_float32 = true;   // partial sums of dweight
    Tensor dx;                    // like x, or absent
    Tensor dweight;               // like weight, contiguous, or absent
    Tensor dbias;                 // like bias, contiguous, or absent
  };

  /// Some of the rows that count. Where a gradient is wanted, the logits' memory holds it when the
  /// callback returns.
  struct Chunk {
    std::int64_t first = 0;
    RowSpace rows;
    RowView logits;  // [rows, V] of x's type
    RowView labels;  // [rows, 1] int64
  };

  LinearHead(const Context& ctx, const char* op, const Arguments& args, Arena& arena);

  /// All checks of the arguments: "OP: weight must be ...".
  static void check(const Context& ctx, const char* op, const Arguments& args);

  /// Finds the rows that count. The one place where the host may wait for the device.
  void select();
  std::int64_t count() const { return count_; }
  RowSpace counted() const { return one_axis(count_); }
  RowView labels() const { return column_view(selected_label_); }
  std::int64_t rows() const { return rows_; }

  /// A float32 value per row: of the rows of x in a tensor shaped like labels, with any strides;
  /// of the rows that count, in order, in a [rows] tensor. Absent tensors do nothing.
  void gather(const Tensor& all, const Tensor& counted) const;
  void scatter(const Tensor& counted, const Tensor& all) const;  // 0 in the other rows

  template <class F>  // void(const Chunk&)
  void for_each_chunk(F&& loss) {
    begin();
    for (std::int64_t first = 0; first < count_; first += step_) {
      const Chunk chunk = make_chunk(first);
      loss(chunk);
      take_gradient(chunk);
    }
    finish();
  }

 private:
  static RowSpace one_axis(std::int64_t count) {
    return {.count = count, .sizes = {count}, .axes = 1};
  }
  void begin();
  Chunk make_chunk(std::int64_t first);
  void take_gradient(const Chunk& chunk);
  void finish();
  void copy_rows(std::int64_t count, const Tensor& from, const Tensor& to, float fill = 0.0F) const;

  const Context& ctx_;
  const char* op_;
  Arguments args_;
  std::int64_t rows_, vocab_, hidden_, chunk_rows_;
  std::int64_t count_ = 0;  // rows that count
  std::int64_t step_ = 1;   // rows of a chunk, the last one may be shorter
  RowSpace space_;
  RowView x_, dx_, labels_;    // over space_
  Tensor x_chunk_, dx_chunk_;  // copies of rows, where a product cannot use them in place
  bool gathers_x_ = false, scatters_dx_ = false;
  Tensor selected_, selected_label_, device_count_;
  Tensor bias_;                     // [V] of x's type
  Tensor logits_;                   // [chunk_rows, V]
  Tensor dweight_sum_, dbias_sum_;  // float32, or dweight itself
  Tensor ones_;                     // [1, chunk_rows] of x's type
};

}  // namespace tigon
