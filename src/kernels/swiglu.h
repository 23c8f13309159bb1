#pragma once

#include "kernels/glu.h"

namespace tigon {

struct SwigluForward : GluForward {};
struct SwigluBackward : GluBackward {};

}  // namespace tigon
