// SPDX-License-Identifier: Apache-2.0
// What the bodies of gather share.
#pragma once

#include "kernels/gather.hpp"

namespace kvatlas::kernels {

namespace reference {
void gather(const Gather& io);
}
namespace cuda {
void gather(const Gather& io, void* stream);
}

}  // namespace kvatlas::kernels
