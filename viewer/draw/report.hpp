// SPDX-License-Identifier: Apache-2.0
// Writes a report on a profile and its policies: one HTML 5 page that holds all it needs and
// fetches nothing. Without scripts it is pictures and tables; its own script (report.js) makes them
// live.
#pragma once

#include <string>

#include "viewer/draw/headless.hpp"

namespace kvatlas::viewer {

struct ReportRequest {
  std::string title;  // empty: the name of the model
  PictureRequest pictures;
  ColourMap colours = ColourMap::viridis;
};
/// The page, which needs a profile. What it cannot show it names, with the reason.
std::string report_html(const OpenedFiles& files, const ReportRequest& request);

}  // namespace kvatlas::viewer
