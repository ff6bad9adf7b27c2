// SPDX-License-Identifier: Apache-2.0
// Writes a report on a profile and its policies: one HTML 5 page that holds its own pictures and
// needs neither scripts nor a network.
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

/// The text with all characters escaped that mean something in HTML, for use between tags and in
/// attributes.
std::string html_text(const std::string& text);
/// The tables of a CSV text as HTML, with at most `most` rows each. An empty line divides two
/// tables; lines that begin with '#' are left out.
std::string html_tables(const std::string& csv, std::size_t most);

}  // namespace kvatlas::viewer
