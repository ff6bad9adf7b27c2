// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/window_scores.hpp"

namespace kvatlas::kernels {
namespace reference {
void window_scores(const WindowScores& io);
void top_counts(const TopCounts& io);
}  // namespace reference
namespace cuda {
void window_scores(const WindowScores& io, void* stream);
void top_counts(const TopCounts& io, void* stream);
}  // namespace cuda
}  // namespace kvatlas::kernels
