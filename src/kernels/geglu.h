#pragma once

#include "kernels/glu.h"
#include "tigon/ops/geglu.h"

namespace tigon {

struct GegluForward : GluForward {
  Gelu gelu = Gelu::tanh;
};
struct GegluBackward : GluBackward {
  Gelu gelu = Gelu::tanh;
};

}  // namespace tigon
