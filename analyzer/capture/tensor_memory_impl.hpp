// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvatlas::capture {

/// From now on LibTorch's tensors on the host reuse the memory of freed ones of their size.
///
/// LibTorch asks for aligned memory, for which the C library looks for room for the worst case of
/// the alignment. It cuts off what is too much, so the hole that a tensor leaves is too small for
/// the next one of the same size, and the heap grows with every layer wherever something small
/// that is kept lies between two holes (C library before 2.38).
void reuse_memory_of_tensors();

}  // namespace kvatlas::capture
