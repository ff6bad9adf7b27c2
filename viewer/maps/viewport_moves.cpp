// SPDX-License-Identifier: Apache-2.0
#include "viewer/maps/viewport_moves.hpp"

#include <algorithm>

namespace kvatlas::viewer {

namespace {

constexpr double kMostPixelsPerToken = 48, kAround = 1.1;

}  // namespace

Viewport limited(Viewport viewport, std::int64_t n_tokens) {
  const auto n = static_cast<double>(std::max<std::int64_t>(n_tokens, 1));
  const double most = n / std::max(1, std::min(viewport.width, viewport.height));
  viewport.tokens_per_pixel =
      std::clamp(viewport.tokens_per_pixel, std::min(1 / kMostPixelsPerToken, most), most);
  const auto within = [&](double first, int pixels) {
    return std::clamp(first, 0.0, std::max(0.0, n - pixels * viewport.tokens_per_pixel));
  };
  viewport.first_key = within(viewport.first_key, viewport.width);
  viewport.first_query = within(viewport.first_query, viewport.height);
  return viewport;
}

bool shows_all(const Viewport& viewport, std::int64_t n_tokens) {
  return viewport.tokens_per_pixel * std::min(viewport.width, viewport.height) >=
         static_cast<double>(n_tokens) * 0.9999;
}

Viewport centred(Viewport viewport, double query, double key) {
  viewport.first_query = query - viewport.height * viewport.tokens_per_pixel / 2;
  viewport.first_key = key - viewport.width * viewport.tokens_per_pixel / 2;
  return viewport;
}

Viewport fitted(Viewport viewport, const TokenRectangle& part, std::int64_t n_tokens) {
  const auto queries = static_cast<double>(part.queries), keys = static_cast<double>(part.keys);
  viewport.tokens_per_pixel = kAround * std::max(queries / std::max(1, viewport.height),
                                                 keys / std::max(1, viewport.width));
  viewport = limited(viewport, n_tokens);
  return limited(centred(viewport, static_cast<double>(part.first_query) + queries / 2,
                         static_cast<double>(part.first_key) + keys / 2),
                 n_tokens);
}

Viewport showing(Viewport viewport, std::int64_t query, std::int64_t key) {
  const auto within = [&](double& first, std::int64_t token, int pixels) {
    const double tokens = pixels * viewport.tokens_per_pixel;
    const auto place = static_cast<double>(token);
    if (place < first || place >= first + tokens) first = place - tokens / 2;
  };
  within(viewport.first_query, query, viewport.height);
  within(viewport.first_key, key, viewport.width);
  return viewport;
}

}  // namespace kvatlas::viewer
