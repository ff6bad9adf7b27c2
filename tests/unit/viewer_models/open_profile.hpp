// SPDX-License-Identifier: Apache-2.0
// The small profile of the calibration tests, opened.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "kernels/base/error.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/unit/calibrate/small_profile.hpp"

namespace kvatlas::viewer {

class OpenProfile {
 public:
  explicit OpenProfile(const calibrate::testing_profile::Shape& shape = {})
      : reader_(written(folder_.path() / "p.h5", shape)) {}
  const profile::Reader& reader() const { return reader_; }

 private:
  static std::filesystem::path written(const std::filesystem::path& path,
                                       const calibrate::testing_profile::Shape& shape) {
    calibrate::testing_profile::write_profile(path, shape);
    return path;
  }
  testing_support::TemporaryFolder folder_;
  profile::Reader reader_;
};

/// The message of the Error(usage) that it ends in.
template <class Fn>
std::string refusal(Fn&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

}  // namespace kvatlas::viewer
