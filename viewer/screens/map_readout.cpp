// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/map_readout.hpp"

#include <algorithm>
#include <cmath>

#include "base/table.hpp"

namespace kvatlas::viewer {

namespace {

constexpr std::size_t kMostRows = 200;

QString share_text(double value) { return QString::number(value, 'g', 4); }

}  // namespace

QString MapReadout::cell(std::int64_t query, std::int64_t key) const {
  if (!scene_.map || query < 0 || key < 0 || query >= scene_.n_tokens || key > query) return {};
  const MapUnder under = map_under(scene_, query, key);
  const auto value = value_at(query, key);
  const auto token = [&](std::int64_t place) {
    // The texts are those of the profile's prompt.
    const QString text =
        under.swiped ? QString() : QString::fromStdString(token_text(scene_.tokens, place));
    return text.isEmpty() ? QString::number(place) : QString("%1 %2").arg(place).arg(text);
  };
  QString out = tr("q %1 · k %2").arg(token(under.query), token(under.key));
  if (under.swiped) out = tr("baseline · ") + out;
  if (!value) return out + tr(" · not read yet");
  if (std::isnan(value->value)) return out + tr(" · missing");
  out += QString(" · ") + share_text(static_cast<double>(value->value));
  if (value->block > 1)
    out += (scene_.reduction == Reduction::mean ? tr(" (mean of %1 × %1 tokens)")
                                                : tr(" (greatest of %1 × %1 tokens)"))
               .arg(value->block);
  out += tr(" · rank %1 of the row's %2 blocks in sight").arg(value->rank).arg(value->stored);
  return out;
}

std::optional<QuantisedMap::Value> MapReadout::value_at(std::int64_t query,
                                                        std::int64_t key) const {
  const MapUnder under = map_under(scene_, query, key);
  return under.map ? under.map->value_at(under.query, under.key) : std::nullopt;
}

QString MapReadout::value(std::int64_t query, std::int64_t key) const {
  const auto value = value_at(query, key);
  return value && !std::isnan(value->value) ? share_text(static_cast<double>(value->value))
                                            : QString("–");
}

QString MapReadout::sum(const std::vector<std::pair<std::int64_t, std::int64_t>>& cells) const {
  double sum = 0;
  int unknown = 0;
  for (const auto& [query, key] : cells) {
    const auto value = value_at(query, key);
    if (!value || std::isnan(value->value)) {
      ++unknown;
      continue;
    }
    const std::int64_t n_tokens = map_under(scene_, query, key).n_tokens;
    sum += static_cast<double>(value->value) *
           static_cast<double>(std::min(value->block, n_tokens - value->first_key));
  }
  return tr("   |   %1 chosen: sum %2 of a row").arg(cells.size()).arg(share_text(sum)) +
         (unknown > 0 ? tr(", %1 of them not known").arg(unknown) : QString());
}

std::optional<RegionStatistics> MapReadout::region() const {
  if (!scene_.region || !scene_.map) return std::nullopt;
  return region_statistics(scene_);
}

QString MapReadout::region_text(const RegionStatistics& found) const {
  const TokenRectangle r = region_tokens(scene_);
  QString text =
      (found.of_pairs ? tr("queries %1 to %2, keys %3 to %4 (whole blocks of %5): sum %6, "
                           "mean %7, greatest %8, entropy %9 bits")
                      : tr("queries %1 to %2, keys %3 to %4 (whole blocks of %5): sum %6, "
                           "mean %7, greatest block %8, entropy %9 bits"))
          .arg(r.first_query)
          .arg(r.first_query + r.queries - 1)
          .arg(r.first_key)
          .arg(r.first_key + r.keys - 1)
          .arg(block_in_sight(scene_))
          .arg(share_text(found.sum), share_text(found.mean), share_text(found.maximum),
               QString::number(found.entropy, 'f', 2));
  text +=
      tr(", %1 % of these rows' attention").arg(QString::number(100 * found.share_of_rows, 'f', 1));
  if (scene_.swiped) text += tr(", of the map left of the line");
  if (found.missing > 0) text += tr(", %1 cells not read").arg(found.missing);
  return text;
}

QString MapReadout::region_csv(const RegionStatistics& found) const {
  const TokenRectangle r = region_tokens(scene_);
  QStringList numbers;
  for (const std::int64_t number :
       {r.first_query, r.queries, r.first_key, r.keys, block_in_sight(scene_), found.pairs})
    numbers << QString::number(number);
  for (const double number :
       {found.sum, found.mean, found.maximum, found.entropy, found.share_of_rows})
    numbers << QString::fromStdString(exact_text(number));
  numbers << QString::number(found.missing) << (found.of_pairs ? "pair" : "block");
  return QString(
             "# %1\nfirst_query,queries,first_key,keys,block_tokens,pairs,sum,mean,maximum,"
             "entropy_bits,share_of_rows,missing_cells,maximum_of\n")
             .arg(QString::fromStdString(scene_.title)) +
         numbers.join(',') + '\n';
}

Table MapReadout::table(std::int64_t query) const {
  Table table;
  table.columns = {{tr("query").toStdString(), "token"},  {tr("key").toStdString(), "token"},
                   {tr("block").toStdString(), "tokens"}, {tr("attention").toStdString(), "share"},
                   {tr("query text").toStdString()},      {tr("key text").toStdString()}};
  if (!scene_.map) return table;
  struct Row {
    std::int64_t query, key, block;
    float value;
  };
  std::vector<Row> rows;
  for (const PlacedTile& placed : scene_.map->tiles()) {
    if (!placed.tile || placed.key != placed.slot) continue;
    const Cells cells = cells_of(*placed.tile, placed.key);
    const CellPart seen = cells_touched(placed, scene_.map->sight());
    for (std::int64_t r = seen.first_row; r < seen.last_row; ++r) {
      const std::int64_t first = (cells.first_row + r) * placed.block;
      if (query >= 0 && (query < first || query >= first + placed.block)) continue;
      for (std::int64_t c = seen.first_column; c < seen.last_column && !cells.is_masked(r, c); ++c)
        if (!std::isnan(cells.at(r, c)))
          rows.push_back(
              {first, (cells.first_column + c) * placed.block, placed.block, cells.at(r, c)});
    }
  }
  const auto count = std::min(rows.size(), kMostRows);
  std::partial_sort(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count), rows.end(),
                    [](const Row& a, const Row& b) { return a.value > b.value; });
  for (std::size_t i = 0; i < count; ++i)
    table.rows.push_back({rows[i].query, rows[i].key, rows[i].block, rows[i].value,
                          token_text(scene_.tokens, rows[i].query),
                          token_text(scene_.tokens, rows[i].key)});
  return table;
}

}  // namespace kvatlas::viewer
