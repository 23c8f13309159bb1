#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/cross_entropy_reduce.cpp"
#include "cpu/foreach_target.h"  // before logits-inl.h
#include "cpu/kernel.h"
#include "cpu/logits-inl.h"
#include "kernels/cross_entropy.h"

HWY_BEFORE_NAMESPACE();
namespace tigon {
namespace HWY_NAMESPACE {
namespace {

/// A few numbers per row: one thread, in double, row by row.
void sum_rows(const Context& /*ctx*/, const CrossEntropyReduce& p) {
  const ClassWeights class_weights(p.weight, p.cols);
  const auto get = [&](const RowView& view, std::int64_t row) {
    return view ? double{*at_row(view, p.rows, row)} : 0.0;
  };
  double loss = 0.0;
  double z_loss = 0.0;
  double correct = 0.0;
  double count = 0.0;
  double weights = 0.0;
  for (std::int64_t row = 0; row < p.rows.count; ++row) {
    const std::int64_t label = load_integer(p.labels, p.labels.offset(p.rows, row));
    if (label == p.ignore_index) continue;
    loss += get(p.loss, row);
    z_loss += get(p.z_loss, row);
    correct += get(p.correct, row);
    count += 1.0;
    weights += double{class_weights[label]};
  }
  const double given = p.given_divisor == nullptr ? weights : double{*p.given_divisor};
  const double divisor = p.mean ? given : 1.0;
  if (p.total_loss != nullptr) *p.total_loss = static_cast<float>(loss / divisor);
  if (p.total_z_loss != nullptr) *p.total_z_loss = static_cast<float>(z_loss / divisor);
  if (p.token_accuracy != nullptr) *p.token_accuracy = static_cast<float>(correct / count);
  if (p.divisor != nullptr) *p.divisor = static_cast<float>(weights);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tigon
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tigon {
namespace {

TIGON_CPU_KERNEL(CrossEntropyReduce, sum_rows);

}  // namespace
}  // namespace tigon
#endif  // HWY_ONCE
