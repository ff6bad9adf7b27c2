// SPDX-License-Identifier: Apache-2.0
// A view as one line of text that can be sent and kept:
// "kvatlas:/data/p.h5#screen=maps&at=L12.H3&sample=4&q=5120".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "viewer/models/place.hpp"

namespace kvatlas::viewer {

struct Link {
  std::string file;  // empty if the link is to be followed in the file that is open
  Place place;
};
std::string link_text(const Link& link);
bool is_link(const std::string& text);
/// Error(usage) names the part whose value is not understood. Parts with unknown names are passed
/// over.
Link parse_link(const std::string& text);

}  // namespace kvatlas::viewer
