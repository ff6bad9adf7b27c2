// SPDX-License-Identifier: Apache-2.0
// What the bodies of log2_store share.
#pragma once

#include "kernels/log2_store.hpp"

namespace kvatlas::kernels::cuda {
void log2_store(const Log2Store& io, void* stream);
}
