// SPDX-License-Identifier: Apache-2.0
// The small profile of the calibration tests, opened.
#pragma once

#include <string>

#include "tests/support/error_of.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/small_profile.hpp"

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

using testing_support::error_of;
using testing_support::refusal;

}  // namespace kvatlas::viewer
