// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/top_counts.hpp"

namespace kvatlas::kernels {
namespace reference {
void top_counts(const TopCounts& io);
}  // namespace reference
namespace cuda {
void top_counts(const TopCounts& io, void* stream);
}  // namespace cuda
}  // namespace kvatlas::kernels
