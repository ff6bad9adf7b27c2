// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvatlas {

/// Bytes of memory that the machine, or the container, could give now; 0 if it does not say.
std::int64_t free_memory();

/// Gives the machine back the pages that were freed but that the heap holds between what is in use.
/// Where large arrays of ever other sizes come and go these would grow from one to the next.
void return_freed_pages();

}  // namespace kvatlas
