// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rules/calibrated.hpp"

namespace kvatlas::calibrate {

std::string estimate_text(const Estimate& estimate, int digits) {
  return fixed_text(estimate.mean, digits) + " [" + fixed_text(estimate.low, digits) + ", " +
         fixed_text(estimate.high, digits) + "]";
}

}  // namespace kvatlas::calibrate
