// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/js_divergence.hpp"

namespace kvatlas::kernels {
namespace reference {
void js_divergence(const JsDivergence& io);
}
namespace cuda {
void js_divergence(const JsDivergence& io, void* stream);
}
}  // namespace kvatlas::kernels
