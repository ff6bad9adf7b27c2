// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/lag_scores.hpp"

namespace kvatlas::kernels {
namespace reference {
void lag_scores(const LagScores& io);
void lag_kept(const LagKept& io);
}  // namespace reference
namespace cuda {
void lag_scores(const LagScores& io, void* stream);
void lag_kept(const LagKept& io, void* stream);
}  // namespace cuda
}  // namespace kvatlas::kernels
