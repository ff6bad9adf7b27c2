// SPDX-License-Identifier: Apache-2.0
// What the sliders of a report's page move: every figure that depends on a setting, drawn for each
// of its stops. One picture differs little from the next, so all of them are one list of lines.
#include <algorithm>
#include <cmath>
#include <sstream>
#include <unordered_map>

#include "base/json_text.hpp"
#include "base/str.hpp"
#include "viewer/draw/picture_impl.hpp"
#include "viewer/draw/report_parts_impl.hpp"

namespace kvatlas::viewer {

namespace {

using nlohmann::json;

constexpr std::size_t kMostStepBytes = 1'000'000;  // of one figure, on the page

/// Lines, each of which is kept once.
class LineList {
 public:
  /// The lines as their numbers, in runs of numbers that follow each other: first and length of
  /// each run.
  json runs(const std::vector<std::string>& lines) {
    std::vector<std::size_t> out;
    for (const auto& line : lines) {
      const std::size_t number = known_.try_emplace(line, all_.size()).first->second;
      if (number == all_.size()) all_.push_back(line);
      const bool follows = !out.empty() && out[out.size() - 2] + out.back() == number;
      if (follows)
        ++out.back();
      else
        out.insert(out.end(), {number, 1});
    }
    return out;
  }
  json runs_of_text(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return runs(lines);
  }
  const std::vector<std::string>& all() const { return all_; }

 private:
  std::vector<std::string> all_;
  std::unordered_map<std::string, std::size_t> known_;
};

std::string text_of(const json& data) { return json_text(data, -1, true); }

std::vector<std::string> spot_lines(const Picture& picture, const Theme& theme) {
  std::vector<std::string> out;
  for (const auto& spot : picture.readout(QRectF({0, 0}, picture.size()), theme).spots)
    out.push_back(text_of(spot_data(spot)));
  return out;
}

std::vector<std::string> table_lines(const Picture& picture) {
  std::vector<std::string> out;
  for (const Chart* chart : picture.charts())
    for (const json& row : table_data(chart->table)) out.push_back(text_of(row));
  return out;
}

}  // namespace

std::vector<std::size_t> stops_of(const std::vector<double>& values, double chosen) {
  constexpr std::size_t kMostStops = 25;
  const auto nearest = std::min_element(values.begin(), values.end(),
                                        [&](double a, double b) {
                                          return std::abs(a - chosen) < std::abs(b - chosen);
                                        }) -
                       values.begin();
  const std::size_t every = (values.size() + kMostStops - 1) / kMostStops;
  std::vector<std::size_t> stops;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i % every == 0 || i + 1 == values.size() || i == static_cast<std::size_t>(nearest))
      stops.push_back(i);
  return stops;
}

std::string steps_element(const Pictures::Steps& steps, ColourMap colours) {
  Theme light = make_theme(false, Headless::font()), dark = make_theme(true, Headless::font());
  light.colours = dark.colours = colours;
  LineList lines;
  json frames = json::array();
  for (const std::size_t stop : stops_of(steps.values, steps.chosen)) {
    const PicturePtr picture = steps.at(steps.values[stop]);
    json frame = {{"title", picture->title()}};
    for (const Theme* theme : {&light, &dark}) {
      const std::string svg = svg_bytes(*picture, *theme, {}, {});
      if (svg.size() > kLargestSvg) return "";
      frame[theme->dark ? "dark" : "light"] = lines.runs_of_text(svg);
    }
    frame["spots"] = lines.runs(spot_lines(*picture, light));
    frame["rows"] = lines.runs(table_lines(*picture));
    frames.push_back(std::move(frame));
  }
  const json all = {{"lines", lines.all()}, {"frames", std::move(frames)}};
  const std::string packed = deflated(QByteArray::fromStdString(text_of(all)));
  if (packed.size() > kMostStepBytes) return "";
  return str("<script type=\"text/plain\" data-steps=\"", static_cast<int>(steps.handle), "\">",
             packed, "</script>\n");
}

}  // namespace kvatlas::viewer
