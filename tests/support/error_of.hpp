// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "base/error.hpp"

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

/// The message of the Error(usage) that it must end in.
template <class Fn>
std::string refusal(Fn&& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

}  // namespace kvatlas::testing_support
