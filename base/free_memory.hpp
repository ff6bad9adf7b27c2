// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvatlas {

/// Bytes of memory that the machine, or the container, could give now; 0 if it does not say.
std::int64_t free_memory();

/// Gives the machine back the freed pages that the heap holds between what is in use. They would
/// grow where large arrays of changing sizes come and go.
void return_freed_pages();

}  // namespace kvatlas
