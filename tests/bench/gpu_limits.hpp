// SPDX-License-Identifier: Apache-2.0
// What a GPU can do at most, measured on it: the limits that bench_gpu holds kernels against.
#pragma once

#include <cstdint>

namespace kvatlas::bench {

/// Waits until the device has done all that it was given. Throws Error if that failed.
void wait_for_device();

/// One run of each, on the current device and its default stream; it returns before the work is
/// done.
/// Adds up `count` floats on the device, which is at least 2^20 and a multiple of 4.
void read_on_device(const float* values, std::int64_t count);
/// So many logarithms by the special-function units, of values in registers.
std::int64_t logarithms_on_device();

}  // namespace kvatlas::bench
