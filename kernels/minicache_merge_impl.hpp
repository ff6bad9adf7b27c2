// SPDX-License-Identifier: Apache-2.0
// What the bodies of minicache_merge share.
#pragma once

#include <cmath>

#include "kernels/minicache_merge.hpp"

// The weights are computed on the host and on the device alike.
#ifdef __CUDACC__
#define KVATLAS_HOST_DEVICE __host__ __device__
#else
#define KVATLAS_HOST_DEVICE
#endif

namespace kvatlas::kernels {

/// The factors of lower and upper in e, from the squared norms and the dot product.
struct SlerpWeights {
  double lower, upper;
};

KVATLAS_HOST_DEVICE inline SlerpWeights slerp_weights(double lower_square, double upper_square,
                                                      double dot, double t) {
  const double lower = sqrt(lower_square), upper = sqrt(upper_square);
  if (lower == 0) return {0, upper == 0 ? 0 : 1 / upper};
  if (upper == 0) return {1 / lower, 0};
  const double cosine = fmax(-1.0, fmin(1.0, dot / lower / upper));
  const double angle = acos(cosine), sine = sin(angle);
  if (sine < 1e-3) {
    if (cosine > 0) return {(1 - t) / lower, t / upper};
    return t >= 0.5 ? SlerpWeights{0, 1 / upper} : SlerpWeights{1 / lower, 0};
  }
  return {sin((1 - t) * angle) / sine / lower, sin(t * angle) / sine / upper};
}

namespace reference {
void minicache_merge(const MinicacheMerge& io);
}
namespace cuda {
void minicache_merge(const MinicacheMerge& io, void* stream);
}

}  // namespace kvatlas::kernels
