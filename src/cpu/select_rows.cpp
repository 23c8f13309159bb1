#include "kernels/select_rows.h"

#include "kernels/registry.h"

namespace tigon {
namespace {

void select(const Context& /*ctx*/, const SelectRows& p) {
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < p.rows.count; ++row) {
    const std::int64_t label = load_integer(p.labels, p.labels.offset(p.rows, row));
    if (label == p.ignore_index) continue;
    p.selected[count] = row;
    p.selected_label[count] = label;
    ++count;
  }
  *p.count = count;
}

const RegisterKernel<SelectRows> kSelect(DeviceType::cpu, {.launch = select});

}  // namespace
}  // namespace tigon
