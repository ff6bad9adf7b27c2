// SPDX-License-Identifier: Apache-2.0
// What the bodies of ragged_decode share.
#pragma once

#include "kernels/ragged_decode.hpp"

namespace kvatlas::kernels {

namespace reference {
void ragged_decode(const RaggedDecode& io);
}
namespace cuda {
void ragged_decode(const RaggedDecode& io, void* stream);
}

}  // namespace kvatlas::kernels
