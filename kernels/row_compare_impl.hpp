// SPDX-License-Identifier: Apache-2.0
// What the bodies of row_compare share.
#pragma once

#include "kernels/row_compare.hpp"

namespace kvatlas::kernels {

namespace reference {
void row_compare(const RowCompare& io);
}
namespace cuda {
void row_compare(const RowCompare& io, void* stream);
}

}  // namespace kvatlas::kernels
