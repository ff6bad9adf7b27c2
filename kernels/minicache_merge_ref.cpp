// SPDX-License-Identifier: Apache-2.0
// The specification of minicache_merge.hpp, in float64, from unit vectors and their angle.
#include <cmath>

#include "kernels/minicache_merge_impl.hpp"
#include "kernels/read.hpp"

namespace kvatlas::kernels::reference {
namespace {

struct Polar {
  double norm = 0;
  Eigen::VectorXd unit;  // zeros if the norm is 0
};

Polar polar(const Eigen::VectorXd& x) {
  const double norm = x.norm();
  return {norm, norm > 0 ? Eigen::VectorXd(x / norm) : x};
}

Eigen::VectorXd slerp(const Polar& lower, const Polar& upper, double t) {
  if (!std::isfinite(lower.norm) || !std::isfinite(upper.norm))
    return Eigen::VectorXd::Constant(lower.unit.size(), std::nan(""));
  if (lower.norm == 0) return upper.unit;
  if (upper.norm == 0) return lower.unit;
  const double dot = lower.unit.dot(upper.unit);
  const double angle = std::acos(std::fmax(-1.0, std::fmin(1.0, dot)));
  double from_lower = std::sin((1 - t) * angle) / std::sin(angle);
  double from_upper = std::sin(t * angle) / std::sin(angle);
  if (std::sin(angle) < 1e-3) {
    from_lower = dot > 0 ? 1 - t : t >= 0.5 ? 0 : 1;
    from_upper = dot > 0 ? t : t >= 0.5 ? 1 : 0;
  }
  return from_lower * lower.unit + from_upper * upper.unit;
}

}  // namespace

void minicache_merge(const MinicacheMerge& io) {
  for (std::int64_t h = 0; h < io.lower.sizes[0]; ++h) {
    const Eigen::MatrixXd lower_rows = read_matrix(io.lower, h),
                          upper_rows = read_matrix(io.upper, h);
    for (std::int64_t i = 0; i < io.lower.sizes[1]; ++i) {
      const Polar lower = polar(lower_rows.row(i)), upper = polar(upper_rows.row(i));
      const Eigen::VectorXd direction = slerp(lower, upper, io.t);
      for (Eigen::Index c = 0; c < direction.size(); ++c) {
        io.merged_lower(h, i, c) = static_cast<float>(lower.norm * direction[c]);
        io.merged_upper(h, i, c) = static_cast<float>(upper.norm * direction[c]);
      }
    }
  }
}

}  // namespace kvatlas::kernels::reference
