// SPDX-License-Identifier: Apache-2.0
// One page of a profile and its policies: HTML 5 that needs nothing else, no script, no network.
#pragma once

#include <string>

#include "viewer/draw/headless.hpp"

namespace kvatlas::viewer {

struct ReportRequest {
  std::string title;  // empty: of the model
  PictureRequest pictures;
  ColourMap colours = ColourMap::viridis;
};
/// The profile is required. What cannot be shown is named with its reason.
std::string report_html(const OpenedFiles& files, const ReportRequest& request);

/// Text between tags or in an attribute, whatever it holds.
std::string html_text(const std::string& text);
/// The tables of a CSV (comment lines left out, an empty line between tables), at most `most` rows
/// each.
std::string html_tables(const std::string& csv, std::size_t most);

}  // namespace kvatlas::viewer
