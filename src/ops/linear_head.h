#pragma once

#include <algorithm>
#include <cstdint>

#include "base/arena.h"
#include "base/rows.h"
#include "ops/linear_head_sizes.h"
#include "tigon/context.h"
#include "tigon/tensor.h"

namespace tigon {

/// A contiguous [rows] tensor as one value per row, from row `first` on; empty when absent.
RowView column_view(const Tensor& values, std::int64_t first = 0);

/// Logits = x @ weight^T + bias of the rows that count, a part at a time, and back from their
/// gradient to those of x, weight and bias: what losses over a vocabulary share that must never
/// hold more logits than they have to. Rows with an ignored label are in no product, and their dx
/// is 0.
///
///   Arena arena(ctx);
///   LinearHead head(ctx, op, args, arena);    // lays out its workspace
///   head.select();
///   head.for_each_chunk([&](const LinearHead::Part& chunk) { /* loss of chunk.logits */ });
///
/// Or, where in_tiles(), by columns:
///
///   head.for_each_tile([&](const LinearHead::Part& tile) { /* statistics of tile.logits */ });
///   head.for_each_tile_gradient([&](const LinearHead::Part& tile) { /* tile.dlogits */ });
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
    bool low_memory = false;      // tiles instead of such sums, else smaller chunks
    Tensor dx;                    // like x, or absent
    Tensor dweight;               // like weight, contiguous, or absent
    Tensor dbias;                 // like bias, contiguous, or absent
  };

  /// Logits of some rows that count, in all columns, or of all rows that count, in some columns.
  struct Part {
    std::int64_t first = 0;  // row or column
    std::int64_t cols = 0;
    RowSpace rows;
    RowView logits;   // [rows, cols] of x's type
    RowView dlogits;  // the callback's to write where a gradient is wanted; may be the logits
    RowView labels;   // [rows, 1] int64
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

  template <class F>  // void(const Part&)
  void for_each_chunk(F&& loss) {
    begin_chunks();
    for (std::int64_t first = 0; first < count_; first += step_) {
      const Part chunk = make_chunk(first);
      loss(chunk);
      take_chunk_gradient(chunk);
    }
    finish_chunks();
  }

  /// Whether logits come in tiles of columns: dweight is wanted, in low memory, and its partial
  /// sums over chunks of rows would need memory of their own.
  bool in_tiles() const { return tile_cols_ > 0; }

  /// Logits alone, in the order of columns; as many as fit are kept for their gradient.
  template <class F>  // void(const Part&)
  void for_each_tile(F&& statistics) {
    begin_tiles();
    if (count_ == 0) return;
    keep_tiles();
    for (std::int64_t tile = 0; tile < tiles(); ++tile) statistics(make_tile(tile));
    visited_ = true;
  }

  /// With or without for_each_tile before it.
  template <class F>  // void(const Part&)
  void for_each_tile_gradient(F&& gradient) {
    if (!visited_) begin_tiles();
    for (std::int64_t turn = 0; count_ > 0 && turn < tiles(); ++turn) {
      const std::int64_t tile = (turn == 0 ? tiles() : turn) - 1;
      const bool is_there = visited_ && (turn == 0 || tile < kept_);
      const Part part = is_there ? part_of(tile) : make_tile(tile);
      gradient(part);
      take_tile_gradient(part, turn == 0);
    }
    finish_tiles();
  }

 private:
  static RowSpace one_axis(std::int64_t count) {
    return {.count = count, .sizes = {count}, .axes = 1};
  }
  void begin();
  bool has_room_in_dx() const;
  void gather_x(std::int64_t first, std::int64_t count) const;
  Tensor x_rows(std::int64_t first, std::int64_t count) const;
  void zero_ignored_dx() const;
  void scatter_dx(std::int64_t first, const Tensor& from) const;
  void copy_rows(std::int64_t count, const Tensor& from, const Tensor& to, float fill = 0.0F) const;
  void finish_dbias() const;

  void lay_out_chunks(Arena& arena, bool sums);
  void begin_chunks();
  Part make_chunk(std::int64_t first) const;
  void take_chunk_gradient(const Part& chunk) const;
  void finish_chunks() const;

  void lay_out_tiles(Arena& arena);
  void begin_tiles();
  void keep_tiles();
  std::int64_t tiles() const { return (vocab_ + tile_cols_ - 1) / tile_cols_; }
  std::int64_t slot_elements() const { return std::max(count_, hidden_) * tile_cols_; }
  Tensor place_of(std::int64_t tile) const;
  Part part_of(std::int64_t tile) const;
  Part make_tile(std::int64_t tile) const;
  void take_tile_gradient(const Part& tile, bool first) const;
  void finish_tiles() const;

  const Context& ctx_;
  const char* op_;
  Arguments args_;
  std::int64_t rows_, vocab_, hidden_, chunk_rows_;
  std::int64_t count_ = 0;  // rows that count
  std::int64_t step_ = 1;   // rows of a chunk, the last one may be shorter
  RowSpace space_;
  RowView x_, dx_, labels_;  // over space_
  bool gathers_x_ = false, scatters_dx_ = false;
  Tensor gathered_;  // rows of x, where a product cannot use them in place
  Tensor dx_rows_;   // likewise of dx
  Tensor selected_, selected_label_, device_count_;
  Tensor bias_;                     // [V] of x's type
  Tensor logits_;                   // [chunk_rows, V], or [rows, tile_cols]
  Tensor dweight_sum_, dbias_sum_;  // float32, or dweight itself
  Tensor ones_;                     // [1, rows of logits_] of x's type

  std::int64_t tile_cols_ = 0;  // 0: chunks of rows
  std::int64_t kept_ = 0;       // tiles whose logits have a place in dweight's memory
  bool visited_ = false;        // all tiles have been; the last one's logits are in logits_
  Tensor dx_sum_;               // [rows, H] float32
};

}  // namespace tigon
