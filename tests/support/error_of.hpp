// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kernels/base/error.hpp"

namespace kvatlas::testing_support {

/// What an Error thrown by `run` says; "" if it throws none.
template <class Fn>
std::string error_of(Fn&& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace kvatlas::testing_support
