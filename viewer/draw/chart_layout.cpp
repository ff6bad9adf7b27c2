// SPDX-License-Identifier: Apache-2.0
#include <QFontMetricsF>
#include <QStringList>
#include <algorithm>
#include <cmath>

#include "viewer/draw/chart_layout_impl.hpp"
#include "viewer/maps/scale.hpp"

namespace kvatlas::viewer {

namespace {

constexpr double kMargin = 10, kGap = 6, kTickLength = 4;
constexpr double kSwatch = 26;  // of an entry of the legend, before its text

/// The finite values seen, as a range.
struct Extent {
  double low = kNoNumber, high = kNoNumber;
  bool positive = false;  // only positive values count
  bool whole = true;      // all were whole numbers

  void add(double value) {
    if (!std::isfinite(value) || (positive && value <= 0)) return;
    low = std::isnan(low) ? value : std::min(low, value);
    high = std::isnan(high) ? value : std::max(high, value);
    whole = whole && value == std::floor(value);
  }
};

enum class Side { x, y, right };

Extent extent_of(const Chart& chart, Side side, bool logarithmic) {
  Extent extent;
  extent.positive = logarithmic;
  const auto add = [&](double x, std::initializer_list<double> heights) {
    if (side == Side::x) return extent.add(x);
    for (const double height : heights) extent.add(height);
  };
  for (const auto& line : chart.lines) {
    if (side != Side::x && line.right != (side == Side::right)) continue;
    for (const auto& point : line.points) add(point.x, {point.y});
  }
  if (side == Side::right) return extent;
  for (const auto& band : chart.bands)
    for (const auto& edge : band.edges) add(edge.x, {edge.low, edge.high});
  for (const auto& series : chart.points)
    for (const auto& point : series.points) add(point.x, {point.y, point.low, point.high});
  for (std::size_t s = 0; s < chart.bars.size(); ++s)
    for (std::size_t i = 0; i < chart.bars[s].bars.size(); ++i)
      add(chart.bars[s].bars[i].x, {0, bar_ends(chart, s, i).second});
  for (const auto& box : chart.boxes) add(box.x, {box.least, box.most});
  for (const auto& mark : chart.marks)
    if (mark.vertical == (side == Side::x)) extent.add(mark.at);
  return extent;
}

/// Round numbers, at most `most`; whole ones where all values are.
std::vector<AxisTick> chosen_ticks(const PlotAxis& axis, bool whole, int most) {
  const Scale scale(axis.logarithmic ? ScaleKind::log : ScaleKind::linear, {axis.low, axis.high});
  std::vector<AxisTick> out;
  for (const auto& tick : ticks(scale, std::max(most, 2)))
    if (!whole || tick.value == std::floor(tick.value))
      out.push_back({tick.value, tick_text(tick.value, tick.label).toStdString()});
  return out;
}

/// Whether the axis counts bars or boxes, which stand at whole numbers.
bool counts_columns(const Chart& chart, Side side) {
  return side == Side::x && (!chart.bars.empty() || !chart.boxes.empty());
}

PlotAxis plot_axis(const Chart& chart, const Axis& axis, Side side) {
  PlotAxis out;
  out.logarithmic = axis.logarithmic;
  const Extent extent = extent_of(chart, side, axis.logarithmic);
  double low = extent.low, high = extent.high;
  if (std::isnan(low)) low = axis.logarithmic ? 0.1 : 0, high = 1;
  if (counts_columns(chart, side)) {
    low -= 0.5;
    high += 0.5;
  } else if (axis.logarithmic) {
    if (high / low < 10) low /= 2, high *= 2;
    if (side != Side::x) high *= 1.2, low /= 1.2;
  } else if (side != Side::x) {
    if (low > 0 && low < 0.6 * high) low = 0;
    const double room = 0.05 * (high - low);
    if (low != 0) low -= room;
    high += room;
  }
  if (axis.range && std::isfinite(axis.range->first) && std::isfinite(axis.range->second) &&
      (!axis.logarithmic || axis.range->first > 0))
    std::tie(low, high) = *axis.range;
  if (!(high > low)) {
    const double about = std::abs(low) > 0 ? 0.1 * std::abs(low) : 0.5;
    if (axis.logarithmic) {
      high = low * 2;
    } else {
      high = low + about;
      low -= about;
    }
  }
  out.low = low;
  out.high = high;
  return out;
}

void set_ticks(PlotAxis& out, const Chart& chart, const Axis& axis, Side side, int most) {
  if (!axis.ticks.empty()) {
    // Given ticks are thinned, not chosen.
    std::vector<AxisTick> seen;
    for (const auto& tick : axis.ticks)
      if (out.holds(tick.at)) seen.push_back(tick);
    const std::size_t step =
        (seen.size() + static_cast<std::size_t>(most)) / static_cast<std::size_t>(most + 1);
    out.ticks.clear();
    for (std::size_t i = 0; i < seen.size(); i += std::max<std::size_t>(step, 1))
      out.ticks.push_back(seen[i]);
    return;
  }
  const bool whole =
      axis.kind == AxisKind::layers || (extent_of(chart, side, axis.logarithmic).whole &&
                                        (counts_columns(chart, side) || out.high - out.low > 1.5));
  out.ticks = chosen_ticks(out, whole, most);
}

double widest(const std::vector<AxisTick>& ticks, const QFontMetricsF& metrics) {
  double width = 0;
  for (const auto& tick : ticks)
    width = std::max(width, metrics.horizontalAdvance(QString::fromStdString(tick.label)));
  return width;
}

double text_height(const QFont& font, const QString& text, double width) {
  return QFontMetricsF(font)
      .boundingRect(QRectF(0, 0, width, 1e5), Qt::TextWordWrap | Qt::AlignLeft, text)
      .height();
}

/// That of all parts of a series, if they have the same.
template <class Part>
Emphasis common_emphasis(const std::vector<Part>& parts) {
  const bool same = !parts.empty() && std::all_of(parts.begin(), parts.end(), [&](const auto& one) {
    return one.emphasis == parts.front().emphasis;
  });
  return same ? parts.front().emphasis : Emphasis::normal;
}

std::vector<LegendEntry> legend_of(const Chart& chart) {
  using Kind = LegendEntry::Kind;
  std::vector<LegendEntry> out;
  const auto add = [&](Kind kind, int number, Emphasis emphasis, const std::string& label,
                       int shape = 0) {
    const QString text = QString::fromStdString(label);
    // Series of the same name are one entry.
    for (const auto& entry : out)
      if (entry.text == text) return;
    if (!label.empty()) out.push_back({kind, number, shape, emphasis, text});
  };
  for (std::size_t i = 0; i < chart.lines.size(); ++i)
    add(Kind::line, static_cast<int>(i), chart.lines[i].emphasis, chart.lines[i].label);
  for (std::size_t i = 0; i < chart.bands.size(); ++i)
    add(Kind::band, static_cast<int>(i), Emphasis::normal, chart.bands[i].label);
  // Where colours tell something else, shapes are grey.
  const auto shapes = chart.point_colours.empty() ? Emphasis::normal : Emphasis::reference;
  for (std::size_t i = 0; i < chart.points.size(); ++i)
    add(Kind::points, points_look(chart, i),
        shapes == Emphasis::normal ? common_emphasis(chart.points[i].points) : shapes,
        chart.points[i].label, chart.points[i].shape);
  for (std::size_t i = 0; i < chart.point_colours.size(); ++i)
    add(Kind::colour, point_colour_look(static_cast<int>(i)), Emphasis::normal,
        chart.point_colours[i]);
  for (std::size_t i = 0; i < chart.bars.size(); ++i)
    add(Kind::bars, static_cast<int>(i), common_emphasis(chart.bars[i].bars), chart.bars[i].label);
  for (std::size_t i = 0; i < chart.bars.size(); ++i)
    if (const auto& bars = chart.bars[i].bars;
        common_emphasis(bars) != Emphasis::strong &&
        std::any_of(bars.begin(), bars.end(),
                    [](const Bar& bar) { return bar.emphasis == Emphasis::strong; }))
      add(Kind::bars, static_cast<int>(i), Emphasis::strong, chart.strong_bars);
  if (!chart.boxes.empty()) add(Kind::box, 0, Emphasis::normal, "quartiles");
  bool strong = false, flagged = false;
  for (const auto& box : chart.boxes) {
    strong = strong || box.emphasis == Emphasis::strong;
    flagged = flagged || box.flagged;
  }
  if (strong) add(Kind::box, 0, Emphasis::strong, chart.strong_boxes);
  if (flagged) add(Kind::flag, 0, Emphasis::normal, chart.flagged_boxes);
  // Of many layers some are named; points of a shape of their own are not known without a name.
  constexpr std::size_t kMost = 14;
  const bool has_points = std::any_of(
      out.begin(), out.end(), [](const LegendEntry& entry) { return entry.kind == Kind::points; });
  if (out.size() <= kMost || has_points) return out;
  std::vector<LegendEntry> some;
  for (std::size_t i = 0; i < kMost; ++i) some.push_back(out[i * (out.size() - 1) / (kMost - 1)]);
  return some;
}

/// Lays entries out in rows, if there are at least so many. Returns the height.
double place_legend(ChartLayout& out, const QFont& font, const QRectF& area, std::size_t least) {
  constexpr double kBetween = 14;
  auto& entries = out.legend;
  if (entries.size() < least) {
    entries.clear();
    return 0;
  }
  const QFontMetricsF metrics(font);
  const double row = metrics.height() + 4;
  double x = area.left(), y = area.top();
  for (auto& entry : entries) {
    const QString whole = entry.text;
    entry.text = metrics.elidedText(whole, Qt::ElideRight, area.width() / 2);
    const double width = kSwatch + metrics.horizontalAdvance(entry.text);
    if (x + width > area.right() && x > area.left()) {
      x = area.left();
      y += row;
    }
    entry.area = {x, y, width, row};
    if (entry.text != whole) out.cut_texts.push_back({entry.area, whole});
    x += width + kBetween;
  }
  return y + row - area.top();
}

/// Lays entries out in a column at the right side of the area, as many as it holds. Returns its
/// width.
double place_legend_beside(ChartLayout& out, const QFont& font, const QRectF& area) {
  constexpr double kMostOfWidth = 0.4;
  const QFontMetricsF metrics(font);
  const double row = metrics.height() + 4;
  auto& entries = out.legend;
  const auto most = std::max<std::size_t>(1, static_cast<std::size_t>(area.height() / row));
  QStringList rest;
  if (entries.size() > most) {
    for (std::size_t i = most - 1; i < entries.size(); ++i) rest.push_back(entries[i].text);
    entries.resize(most - 1);
    LegendEntry& last = entries.emplace_back();
    last.kind = LegendEntry::Kind::rest;
    last.text = QString("and %1 more").arg(rest.size());
  }
  double widest = 0;
  for (const auto& entry : entries)
    widest = std::max(widest, std::ceil(metrics.horizontalAdvance(entry.text)));
  const double width = std::min(kSwatch + widest + 4, kMostOfWidth * area.width());
  double y = area.top();
  for (auto& entry : entries) {
    const QString whole =
        entry.kind == LegendEntry::Kind::rest ? rest.join(QStringLiteral("; ")) : entry.text;
    entry.text = metrics.elidedText(entry.text, Qt::ElideRight, width - kSwatch);
    entry.area = {area.right() - width, y, width, row};
    if (entry.text != whole) out.cut_texts.push_back({entry.area, whole});
    y += row;
  }
  return width;
}

constexpr double kTickSpace = 7;  // between the legend's bar and the labels of its ticks

/// Of the labels beside the legend's bar.
double widest_tick(const Matrix& matrix, const QFontMetricsF& metrics) {
  const Scale scale = legend_scale(matrix);
  double widest_label = 0;
  for (const auto& tick : ticks(scale, kMostLegendTicks))
    widest_label =
        std::max(widest_label, metrics.horizontalAdvance(tick_text(tick.value, tick.label)));
  return widest_label;
}

/// As many columns as leave the cells largest.
void place_matrices(const Chart& chart, const QFont& font, ChartLayout& out) {
  const QFontMetricsF metrics(font);
  const auto count = static_cast<int>(chart.matrices.size());
  const QRectF room = out.matrices;
  const double label = count > 1 ? metrics.height() + 2 : 0;
  const auto& first = chart.matrices.front();
  const auto rows = static_cast<double>(std::max<std::size_t>(first.row_labels.size(), 1));
  const auto columns = static_cast<double>(std::max<std::size_t>(first.column_labels.size(), 1));
  const bool square = rows == columns;
  int best = 1;
  double best_size = 0;
  for (int across = 1; across <= count; ++across) {
    const int down = (count + across - 1) / across;
    const double width = room.width() / across - kGap;
    const double height = room.height() / down - kGap - label;
    const double size = square ? std::min(width, height) : std::min(width, 3 * height);
    // Rather wide than high, if it costs little.
    if (size > best_size || (across == best + 1 && size > 0.93 * best_size))
      best_size = std::max(size, best_size), best = across;
  }
  const int down = (count + best - 1) / best;
  const double width = std::max(room.width() / best, 4.0);
  const double height = std::max(room.height() / down, 4.0);
  for (int i = 0; i < count; ++i) {
    const auto& matrix = chart.matrices[i];
    const int row = i / best, column = i % best;
    const QRectF cell(room.left() + column * width, room.top() + row * height, width, height);
    ChartLayout::MatrixPlace place;
    place.label = QRectF(cell.left(), cell.top(), cell.width() - kGap, label);
    QRectF cells = cell.adjusted(0, label, -kGap, -kGap);
    place.row_labels = count == 1 || cells.height() >= 150;
    place.column_labels = count == 1 || cells.width() >= 150;
    if (place.row_labels) {
      double widest_label = 0;
      for (const auto& text : matrix.row_labels)
        widest_label =
            std::max(widest_label, metrics.horizontalAdvance(QString::fromStdString(text)));
      // One matrix can leave more of its width to names.
      const double most = cells.width() / (count == 1 ? 2.5 : 3);
      place.row_label_width = std::min(std::ceil(widest_label), most - 5);
      cells.setLeft(cells.left() + place.row_label_width + 5);
    }
    if (place.column_labels) cells.setBottom(cells.bottom() - metrics.height() - 3);
    place.cells = cells;
    out.places.push_back(place);
  }
  double side = 1e9;  // of squares, all of which are equal
  for (const auto& place : out.places)
    side = std::max(1.0, std::min({side, place.cells.width(), place.cells.height()}));
  for (auto& place : out.places) {
    QRectF& cells = place.cells;
    if (square) cells.setSize({side, side});
    if (square && count == 1)
      cells.moveLeft(cells.left() + std::max(0.0, (room.right() - cells.left() - side) / 2));
    // Whole pixels: half ones would blend colours at the edges.
    cells = QRectF(cells.topLeft().toPoint(), cells.size().toSize().expandedTo({1, 1}));
    place.label.setLeft(cells.left());
  }
}

void widen(PlotAxis& axis, const ChartFrame::Range& least) {
  if (!least) return;
  axis.low = std::min(axis.low, least->first);
  axis.high = std::max(axis.high, least->second);
}

void place_plot(const Chart& chart, const Theme& theme, const QRectF& room, const ChartFrame& least,
                ChartLayout& out) {
  const QFont tick_font = sized_font(theme.font, kTickFont);
  const QFontMetricsF metrics(tick_font);
  const double line = metrics.height();
  out.x = plot_axis(chart, chart.x, Side::x);
  out.y = plot_axis(chart, chart.y, Side::y);
  widen(out.x, least.x);
  widen(out.y, least.y);
  out.has_right = chart.right.has_value();
  const double bottom = line + kTickLength + (chart.x.title.empty() ? 0 : line + 4) + 2;
  QRectF plot = room.adjusted(0, line / 2, 0, -bottom);
  const int most_y = std::clamp(static_cast<int>(plot.height() / (2.2 * line)), 2, 12);
  set_ticks(out.y, chart, chart.y, Side::y, most_y);
  const bool y_titled = !chart.y.title.empty();
  plot.setLeft(plot.left() + widest(out.y.ticks, metrics) + kTickLength + 4 +
               (y_titled ? line + 4 : 0));
  if (out.has_right) {
    out.right = plot_axis(chart, *chart.right, Side::right);
    widen(out.right, least.right);
    set_ticks(out.right, chart, *chart.right, Side::right, most_y);
    plot.setRight(plot.right() - widest(out.right.ticks, metrics) - kTickLength - 4 -
                  (chart.right->title.empty() ? 0 : line + 4));
  } else {
    plot.setRight(plot.right() - line / 2);
  }
  plot.setWidth(std::max(plot.width(), 8.0));
  plot.setHeight(std::max(plot.height(), 8.0));
  // As many x ticks as their labels have room for.
  double label = 30;
  if (!chart.x.ticks.empty()) label = std::max(label, widest(chart.x.ticks, metrics));
  for (int turn = 0; turn < 2; ++turn) {
    const int most = std::clamp(static_cast<int>(plot.width() / (label + 14)), 2, 40);
    set_ticks(out.x, chart, chart.x, Side::x, most);
    label = std::max(label, widest(out.x.ticks, metrics));
  }
  out.plot = plot;
  out.x.first = plot.left();
  out.x.last = plot.right();
  for (auto* axis : {&out.y, &out.right}) {
    axis->first = plot.bottom();
    axis->last = plot.top();
  }
  out.x_title = {plot.left(), plot.bottom() + kTickLength + line + 4, plot.width(), line};
  // Beside the plot, or along all the height if it needs that.
  const auto beside = [&](double left, const Axis& axis) {
    const double length = metrics.horizontalAdvance(axis_words(axis));
    return length <= plot.height() ? QRectF(left, plot.top(), line, plot.height())
                                   : QRectF(left, room.top(), line, room.height());
  };
  out.y_title = beside(room.left(), chart.y);
  if (chart.right) out.right_title = beside(room.right() - line, *chart.right);
}

}  // namespace

Scale legend_scale(const Matrix& matrix) {
  auto [low, high] = matrix.range;
  if (!(high > low) || !std::isfinite(high - low)) low = 0, high = 1;
  return {ScaleKind::linear, {low, high}};
}

QString plain_number(double value, int digits) {
  const double size = std::abs(value);
  const bool in_full = size < 1e9 && (value == std::floor(value) || size >= std::pow(10, digits));
  return in_full ? QString::number(value, 'f', 0) : QString::number(value, 'g', digits);
}

QString tick_text(double value, const std::string& label) {
  return std::abs(value) >= 1000 ? plain_number(value, 6) : QString::fromStdString(label);
}

double PlotAxis::share(double value) const {
  if (!logarithmic) return (value - low) / (high - low);
  return value > 0 ? std::log(value / low) / std::log(high / low) : kNoNumber;
}

double PlotAxis::at_share(double share) const {
  return logarithmic ? low * std::pow(high / low, share) : low + share * (high - low);
}

double PlotAxis::pixel(double value) const { return first + share(value) * (last - first); }

double PlotAxis::value(double pixel) const { return at_share((pixel - first) / (last - first)); }

QFont sized_font(const QFont& font, double factor, bool bold) {
  QFont out(font);
  const double pixels =
      font.pixelSize() > 0 ? font.pixelSize() : std::max(font.pointSizeF(), 1.0) * 96 / 72;
  out.setPixelSize(std::max(1, static_cast<int>(std::lround(pixels * factor))));
  out.setBold(bold);
  return out;
}

bool has_plot(const Chart& chart) {
  return !chart.lines.empty() || !chart.bands.empty() || !chart.points.empty() ||
         !chart.bars.empty() || !chart.boxes.empty() ||
         (chart.matrices.empty() && !chart.x.title.empty());
}

int line_look(const Chart& chart, std::size_t line) {
  const auto is_reference = [&](std::size_t i) {
    return i < chart.lines.size() && chart.lines[i].emphasis == Emphasis::reference;
  };
  int look = 0;
  for (std::size_t i = 0; i < line; ++i) look += is_reference(i) == is_reference(line) ? 1 : 0;
  return look;
}
int points_look(const Chart& chart, std::size_t series) {
  return line_look(chart, chart.lines.size()) + static_cast<int>(series);
}
int band_look(const Chart& chart, std::size_t band) {
  const int line = chart.bands[band].line;
  return line < 0 ? static_cast<int>(band) + 5 : line_look(chart, static_cast<std::size_t>(line));
}
bool shows_points(const Line& line) {
  return line.points.size() <= 40 && !line.steps && line.emphasis != Emphasis::reference;
}
int point_colour_look(int colour) { return colour + 1; }
int bars_look(const Chart& chart, std::size_t series) {
  return points_look(chart, chart.points.size()) + static_cast<int>(series);
}

std::pair<double, double> bar_ends(const Chart& chart, std::size_t series, std::size_t index) {
  double bottom = 0;
  for (std::size_t s = series; s > 0 && chart.bars[s].stacked; --s)
    if (index < chart.bars[s - 1].bars.size()) {
      const double height = chart.bars[s - 1].bars[index].height;
      if (std::isfinite(height)) bottom += height;
    }
  return {bottom, bottom + chart.bars[series].bars[index].height};
}

std::pair<double, double> bar_sides(const Chart& chart, std::size_t series, std::size_t index) {
  int groups = 0, own = 0;
  for (std::size_t s = 0; s < chart.bars.size(); ++s) {
    if (!chart.bars[s].stacked || s == 0) ++groups;
    if (s == series) own = groups - 1;
  }
  const double width = 0.8 / groups;
  const double left = chart.bars[series].bars[index].x - 0.4 + own * width;
  return {left, left + width};
}

ChartFrame frame_of(const ChartLayout& layout) {
  ChartFrame out{layout.title.height(), layout.notes.height(), layout.legend_height};
  if (!layout.has_plot) return out;
  out.x = {layout.x.low, layout.x.high};
  out.y = {layout.y.low, layout.y.high};
  if (layout.has_right) out.right = {layout.right.low, layout.right.high};
  return out;
}

ChartFrame joined(const ChartFrame& one, const ChartFrame& other) {
  const auto both = [](const ChartFrame::Range& a, const ChartFrame::Range& b) {
    if (!a || !b) return a ? a : b;
    return ChartFrame::Range({std::min(a->first, b->first), std::max(a->second, b->second)});
  };
  return {std::max(one.title, other.title),
          std::max(one.notes, other.notes),
          std::max(one.legend, other.legend),
          both(one.x, other.x),
          both(one.y, other.y),
          both(one.right, other.right)};
}

ChartLayout layout_of(const Chart& chart, const Theme& theme, const QRectF& area,
                      const ChartFrame& least) {
  ChartLayout out;
  out.area = area;
  out.has_plot = has_plot(chart);
  QRectF room = area.adjusted(kMargin, kMargin, -kMargin, -kMargin);
  if (room.width() < 40 || room.height() < 40) room = area;
  if (theme.titles && !chart.title.empty()) {
    const QFont font = sized_font(theme.font, kTitleFont, true);
    const double height = std::max(
        least.title, std::min(text_height(font, QString::fromStdString(chart.title), room.width()),
                              room.height() / 4));
    out.title = {room.left(), room.top(), room.width(), height};
    room.setTop(room.top() + height + kGap);
  }
  if (theme.notes && (!chart.notes.empty() || least.notes > 0)) {
    const QFont font = sized_font(theme.font, kNoteFont);
    double height = 0;
    for (const auto& note : chart.notes)
      height += text_height(font, QString::fromStdString(note), room.width());
    height = std::max(least.notes, std::min(height, room.height() / 3));
    out.notes = {room.left(), room.bottom() - height, room.width(), height};
    room.setBottom(room.bottom() - height - kGap);
  }
  if (out.has_plot && theme.legends) {
    out.legend = legend_of(chart);
    const QFont font = sized_font(theme.font, kTickFont);
    const auto all = out.legend;
    // A chart of one series needs no legend, unless it has two axes that might be meant.
    const double height =
        std::max(least.legend, place_legend(out, font, room, chart.right ? 1 : 2));
    // Long names in many rows would leave the chart no height.
    const double rows = height / (QFontMetricsF(font).height() + 4);
    if (height > room.height() / 3 && 3 * rows > static_cast<double>(all.size())) {
      out.legend = all;
      out.cut_texts.clear();
      room.setRight(room.right() - place_legend_beside(out, font, room) - kGap);
    } else if (height > 0) {
      out.legend_height = height;
      room.setTop(room.top() + height + 2);
    }
  }
  QRectF plot_room = room;
  if (!chart.matrices.empty()) {
    const QFont font = sized_font(theme.font, kTickFont);
    const QFontMetricsF metrics(font);
    QRectF below = room;
    if (out.has_plot) {
      const double height =
          std::clamp(16.0 * static_cast<double>(chart.matrices.front().row_labels.size()) + 40,
                     room.height() * 0.2, room.height() * 0.45);
      below.setTop(room.bottom() - height);
      plot_room.setBottom(below.top() - kGap);
    }
    if (theme.legends) {
      constexpr double kBar = 14, kBeforeBar = 16, kMost = 96;
      const double words =
          std::max(kBar + kTickSpace + widest_tick(chart.matrices.front(), metrics),
                   metrics.horizontalAdvance(QString::fromStdString(chart.matrices.front().unit)) -
                       kBeforeBar + 4);
      const double room_of_bar = std::min(kBeforeBar + words + 4, kMost);
      out.legend_bar = {
          below.right() - room_of_bar + kBeforeBar, below.top() + metrics.height() + 8, kBar,
          std::max(10.0, std::min(below.height() - 2 * metrics.height() - 16, 360.0))};
      below.setRight(below.right() - room_of_bar);
    }
    if (!out.has_plot && !chart.y.title.empty()) {
      out.y_title = {below.left(), below.top(), metrics.height(), below.height()};
      below.setLeft(below.left() + metrics.height() + 4);
    }
    if (!out.has_plot && !chart.x.title.empty()) {
      out.x_title = {below.left(), below.bottom() - metrics.height(), below.width(),
                     metrics.height()};
      below.setBottom(below.bottom() - metrics.height() - 2);
    }
    out.matrices = below;
    place_matrices(chart, font, out);
    // The titles stand beside the cells, which may need less than the room.
    QRectF cells;
    for (const auto& place : out.places) cells |= place.cells;
    out.y_title.setTop(cells.top());
    out.y_title.setBottom(cells.bottom());
    out.x_title.setLeft(cells.left());
    out.x_title.setRight(cells.right());
    out.x_title.moveTop(std::min(out.x_title.top(), cells.bottom() + metrics.height() + 6));
  }
  if (out.has_plot) place_plot(chart, theme, plot_room, least, out);
  return out;
}

double least_height(const Chart& chart, const Theme& theme, double width, const ChartFrame& least) {
  constexpr double kAmple = 4096, kLeastPlot = 120, kMost = 640;
  if (!has_content(chart)) return kLeastPlot;
  const ChartLayout layout = layout_of(chart, theme, {0, 0, width, kAmple}, least);
  const double around = kAmple - layout.plot.height() - layout.matrices.height();
  const bool both = layout.has_plot && !chart.matrices.empty();
  return std::min(around + (both ? 2 : 1) * kLeastPlot, kMost);
}

QString axis_words(const Axis& axis) {
  const QString title = QString::fromStdString(axis.title);
  return axis.unit.empty() || axis.unit == axis.title
             ? title
             : title + " (" + QString::fromStdString(axis.unit) + ")";
}

}  // namespace kvatlas::viewer
