// SPDX-License-Identifier: Apache-2.0
// The specification of gather.hpp, one element at a time.
#include <cstring>

#include "kernels/gather_impl.hpp"

namespace kvatlas::kernels::reference {

void gather(const Gather& io) {
  const std::int64_t size = dtype_bytes(io.from.type), dim = io.from.sizes[2];
  const auto* from = static_cast<const unsigned char*>(io.from.data);
  auto* to = static_cast<unsigned char*>(io.to);
  for (std::int64_t g = 0; g < io.from.sizes[0]; ++g) {
    for (std::int64_t i = io.offsets(g); i < io.offsets(g + 1); ++i) {
      for (std::int64_t c = 0; c < dim; ++c) {
        const std::int64_t element =
            g * io.from.strides[0] + io.positions(i) * io.from.strides[1] + c * io.from.strides[2];
        const std::int64_t row = io.starts(g) + i - io.offsets(g);
        std::memcpy(to + (row * dim + c) * size, from + element * size,
                    static_cast<std::size_t>(size));
      }
    }
  }
}

}  // namespace kvatlas::kernels::reference
