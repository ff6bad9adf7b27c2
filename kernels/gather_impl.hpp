// SPDX-License-Identifier: Apache-2.0
// What the bodies of gather share.
#pragma once

#include "kernels/gather.hpp"

namespace kvatlas::kernels {

namespace reference {
void gather(const Gather& io);
}
#if KVATLAS_HAS_CUDA
namespace cuda {
void gather(const Gather& io, void* stream);
}
#endif

}  // namespace kvatlas::kernels
