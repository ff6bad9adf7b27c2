// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

#include "base/error.hpp"

namespace kvatlas {

/// What any code threw, as one of our errors: itself, or memory that ran out, a GPU that failed, or
/// else an internal error with the first line of what the library says. LibTorch's texts go on with
/// a list of calls after that line.
Error as_error(const std::exception& thrown);

/// The GPU failed, or its memory ran out. `text` says at what, and what CUDA answered.
Error gpu_error(bool memory, const std::string& text);

}  // namespace kvatlas
