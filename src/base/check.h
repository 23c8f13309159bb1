#pragma once

#include <cstdint>
#include <string_view>

#include "tigon/context.h"
#include "tigon/tensor.h"

namespace tigon {

/// The checks that operators share. `op` and `name` open the sentence: "OP: NAME must be ...".
class Checker {
 public:
  Checker(std::string_view op, const Context& ctx) : op_(op), ctx_(ctx) {}

  /// Present, of a floating type, on the context's device, of rank >= min_rank, no negative stride.
  void floating(const Tensor& t, std::string_view name, int min_rank = 1) const;
  void same_shape(const Tensor& t, std::string_view name, const Tensor& as,
                  std::string_view as_name) const;
  /// Floating, of the shape and type of `as`, any stride.
  void like(const Tensor& t, std::string_view name, const Tensor& as,
            std::string_view as_name) const;
  void same_dtype(const Tensor& t, std::string_view name, DType dtype) const;
  /// `size` elements of this type side by side, whatever the axes.
  void vector(const Tensor& t, std::string_view name, DType dtype, std::int64_t size) const;
  /// [size], floating, any stride.
  void weight(const Tensor& t, std::string_view name, std::int64_t size) const;
  /// One float32 element: a scalar that lies on the device.
  void scalar(const Tensor& t, std::string_view name) const;
  /// One float32 value per row of `as`, any stride.
  void column(const Tensor& t, std::string_view name, const Tensor& as,
              std::string_view as_name) const;
  /// int64 or int32, shaped like the leading axes of `as`, any stride. Where the host can read them
  /// (CPU), each in [0, classes) or ignore_index.
  void labels(const Tensor& t, std::string_view name, const Tensor& as, std::string_view as_name,
              std::int64_t classes, std::int64_t ignore_index) const;
  void workspace(std::size_t needed) const;

 private:
  void leading_shape(const Tensor& t, std::string_view name, const Tensor& as,
                     std::string_view as_name) const;
  void device(const Tensor& t, std::string_view name) const;

  std::string_view op_;
  const Context& ctx_;
};

}  // namespace tigon
