// SPDX-License-Identifier: Apache-2.0
// The specification of minicache_merge.hpp, in float64, from unit vectors and their angle.
#include <cmath>
#include <vector>

#include "kernels/minicache_merge_impl.hpp"
#include "kernels/read.hpp"

namespace kvatlas::kernels::reference {
namespace {

struct Polar {
  double norm = 0;
  std::vector<double> unit;  // zeros if the norm is 0
};

Polar polar(const AnyView<3>& x, std::int64_t h, std::int64_t i) {
  Polar out;
  for (std::int64_t c = 0; c < x.sizes[2]; ++c) {
    out.unit.push_back(read(x, h, i, c));
    out.norm += out.unit.back() * out.unit.back();
  }
  out.norm = std::sqrt(out.norm);
  if (out.norm > 0)
    for (double& value : out.unit) value /= out.norm;
  return out;
}

std::vector<double> slerp(const Polar& lower, const Polar& upper, double t) {
  if (!std::isfinite(lower.norm) || !std::isfinite(upper.norm))
    return std::vector<double>(lower.unit.size(), std::nan(""));
  if (lower.norm == 0) return upper.unit;
  if (upper.norm == 0) return lower.unit;
  double dot = 0;
  for (std::size_t c = 0; c < lower.unit.size(); ++c) dot += lower.unit[c] * upper.unit[c];
  const double angle = std::acos(std::fmax(-1.0, std::fmin(1.0, dot)));
  double from_lower = std::sin((1 - t) * angle) / std::sin(angle);
  double from_upper = std::sin(t * angle) / std::sin(angle);
  if (std::sin(angle) < 1e-3) {
    from_lower = dot > 0 ? 1 - t : t >= 0.5 ? 0 : 1;
    from_upper = dot > 0 ? t : t >= 0.5 ? 1 : 0;
  }
  std::vector<double> out;
  for (std::size_t c = 0; c < lower.unit.size(); ++c)
    out.push_back(from_lower * lower.unit[c] + from_upper * upper.unit[c]);
  return out;
}

}  // namespace

void minicache_merge(const MinicacheMerge& io) {
  for (std::int64_t h = 0; h < io.lower.sizes[0]; ++h) {
    for (std::int64_t i = 0; i < io.lower.sizes[1]; ++i) {
      const Polar lower = polar(io.lower, h, i), upper = polar(io.upper, h, i);
      const auto direction = slerp(lower, upper, io.t);
      for (std::size_t c = 0; c < direction.size(); ++c) {
        io.merged_lower(h, i, c) = static_cast<float>(lower.norm * direction[c]);
        io.merged_upper(h, i, c) = static_cast<float>(upper.norm * direction[c]);
      }
    }
  }
}

}  // namespace kvatlas::kernels::reference
