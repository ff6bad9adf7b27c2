// SPDX-License-Identifier: Apache-2.0
// The parts of a report's page. report.js makes them live; without it they are pictures and tables.
#pragma once

#include <QByteArray>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "viewer/draw/report.hpp"

namespace kvatlas::viewer {

/// The text with all characters escaped that mean something in HTML, for use between tags and in
/// attributes. What is no UTF-8 becomes U+FFFD.
std::string html_text(const std::string& text);
std::string element(const char* name, const std::string& text);

/// Data for report.js, as an element that shows nothing. The text is ASCII and has no '<', so that
/// nothing in it can end the element.
std::string data_element(const std::string& attributes, const nlohmann::json& data);

/// Rows that a table of the page has, at most.
inline constexpr std::size_t kMostRows = 1000;
/// A table, with numbers as people write them; the exact ones are in "title". `attributes` are
/// those of the element "table", and may be empty.
std::string html_table(const Table& table, const std::string& caption,
                       const std::string& attributes = {});

/// Of each row that html_table() shows, and of each of its cells: what is shown, and the exact
/// number if that is another.
nlohmann::json table_data(const Table& table);

/// Bytes deflated as zlib does it, in base64.
std::string deflated(const QByteArray& bytes);

inline constexpr std::size_t kLargestSvg = 200U << 10U;  // larger pictures become a PNG
/// A part of a picture, as report.js reads it: its area, and what it says.
nlohmann::json spot_data(const Readout::Spot& spot);

/// The values of a setting at which its slider stops, as their numbers: some of them all, for each
/// is a picture of every figure that depends on it, and the one nearest to what is chosen.
std::vector<std::size_t> stops_of(const std::vector<double>& values, double chosen);
/// A figure at each stop of the slider that its page has for a setting, for report.js to show in
/// place of the figure's picture; empty if this takes too much room.
std::string steps_element(const Pictures::Steps& steps, ColourMap colours);

/// What the page calls a picture: its title, without what is for `kvatlas render` alone.
std::string heading_of(const PictureEntry& entry);
/// A picture in both themes, of which the reader's own is shown; a large one is light only.
std::string image_element(const Picture& picture, ColourMap colours);
/// A picture with what can be read off it, its tables, and what is given in `more`. `attributes`
/// are those of the element, and may be empty.
std::string figure(const PictureEntry& entry, const Picture& picture, ColourMap colours,
                   const std::string& more = {}, const std::string& attributes = {});

/// The maps of all heads of the samples chosen, for report.js to draw: as fine as is stored, or as
/// fits into so many bytes. Empty if the profile has no maps.
std::string maps_element(const profile::Reader& profile, const std::vector<std::size_t>& positions,
                         ColourMap colours, std::size_t most_bytes);

}  // namespace kvatlas::viewer
