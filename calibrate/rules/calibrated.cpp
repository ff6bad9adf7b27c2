// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rules/calibrated.hpp"

#include <cmath>

namespace kvatlas::calibrate {

std::string estimate_text(const Estimate& estimate, int digits) {
  return fixed_text(estimate.mean, digits) + " [" + fixed_text(estimate.low, digits) + ", " +
         fixed_text(estimate.high, digits) + "]";
}

std::string quantile_text(const Quantile& quantile, int digits) {
  if (std::isnan(quantile.value)) return "-";
  const std::string low = fixed_text(quantile.low, digits);
  return fixed_text(quantile.value, digits) +
         (std::isfinite(quantile.high) ? " [" + low + ", " + fixed_text(quantile.high, digits) + "]"
                                       : " [at least " + low + "]");
}

std::string divergence_text(const Divergence& divergence) {
  if (std::isnan(divergence.mean)) return {};
  std::string text;
  if (!std::isnan(divergence.median.value))
    text = "median " + quantile_text(divergence.median) + ", 90th percentile " +
           quantile_text(divergence.p90) + ", ";
  return text + "mean " + fixed_text(divergence.mean, 3);
}

}  // namespace kvatlas::calibrate
