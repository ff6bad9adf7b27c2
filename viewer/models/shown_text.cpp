// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/shown_text.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/str.hpp"
#include "viewer/maps/tiles.hpp"
#include "viewer/models/fuzzy.hpp"

namespace kvatlas::viewer {

std::string words_of(const ShownText& text, std::size_t token) {
  if (token >= text.tokens.size()) return {};
  const ShownToken& of = text.tokens[token];
  const bool generated = token >= text.prompt_tokens;
  return str("token ", token, " “", of.text, "”", generated ? ", generated" : "", ": ",
             percent_text(of.value), " ", text.unit);
}

std::vector<std::pair<std::size_t, std::size_t>> places_of(const ShownText& text,
                                                           const std::string& wanted) {
  if (wanted.empty()) return {};
  std::string all;
  std::vector<std::size_t> ends;  // [token]: where its bytes end
  for (const auto& token : text.tokens) {
    all += token.text;
    ends.push_back(all.size());
  }
  all = lowered(all);
  const std::string word = lowered(wanted);
  std::vector<std::pair<std::size_t, std::size_t>> places;
  const auto token_at = [&](std::size_t byte) {
    return static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), byte) -
                                    ends.begin());
  };
  for (std::size_t at = all.find(word); at != std::string::npos; at = all.find(word, at + 1))
    places.emplace_back(token_at(at), token_at(at + word.size() - 1) + 1);
  return places;
}

Table table_of(const std::vector<ShownText>& texts) {
  Table table;
  table.columns = {{"token"}};
  std::size_t most = 0;
  for (const auto& text : texts) {
    table.columns.push_back({texts.size() > 1 ? "text, " + text.title : "text"});
    table.columns.push_back({"share " + text.unit + (texts.size() > 1 ? ", " + text.title : "")});
    most = std::max(most, text.tokens.size());
  }
  for (std::size_t i = 0; i < most; ++i) {
    auto& row = table.rows.emplace_back();
    row.emplace_back(static_cast<double>(i));
    for (const auto& text : texts) {
      const bool there = i < text.tokens.size();
      row.emplace_back(there ? text.tokens[i].text : std::string());
      row.emplace_back(there ? text.tokens[i].value : kNoNumber);
    }
  }
  return table;
}

namespace {

/// The texts with these shares of attention, shaded on a logarithmic scale up to the greatest but
/// for the first token's, which takes most of all.
ShownText shaded_text(std::string title, std::string unit, const std::vector<double>& shares,
                      const std::vector<std::string>& texts) {
  // The least share that has a shade: tokens that take less look alike.
  constexpr double kFloor = 1e-5;
  ShownText out{std::move(title), std::move(unit), {}, shares.size(), false, {}, {}};
  double most = kFloor * 10;
  for (std::size_t i = 1; i < shares.size(); ++i)
    if (!std::isnan(shares[i])) most = std::max(most, shares[i]);
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const std::string piece = i < texts.size() ? texts[i] : str("#", i, " ");
    const double share = std::isnan(shares[i]) ? 0 : shares[i];
    const double shade =
        std::clamp(std::log(std::max(share, kFloor) / kFloor) / std::log(most / kFloor), 0.0, 1.0);
    out.tokens.push_back({piece, piece.find("⏎") != std::string::npos, shade, share, false});
  }
  out.least = str("at most ", percent_text(kFloor));
  out.most = str("from ", percent_text(most), " on");
  return out;
}

/// A row of the finest map that is stored of a head.
struct MapRow {
  std::int64_t block = 0;  // tokens a side; 0 if there is no map
  std::vector<double> shares;
};
MapRow map_row(const profile::Reader& profile, const MapKey& map, std::int64_t query) {
  const auto tiles =
      profile_tiles(std::shared_ptr<const profile::Reader>(std::shared_ptr<void>(), &profile));
  const auto levels = tiles->levels(map.sample);
  if (levels.empty()) return {};
  MapRow out{levels.front().block_tokens, {}};
  const auto n_tokens = profile.samples()[map.sample].n_tokens;
  out.shares.assign(static_cast<std::size_t>(n_tokens), 0);
  const std::int64_t row = query / out.block;
  for (std::int64_t column = 0; column <= row / kTileSide; ++column) {
    const TileKey key{map, 0, row / kTileSide, column};
    const Tile tile = tiles->read(key);
    const Cells cells = cells_of(tile, key);
    for (std::int64_t c = 0; c < cells.columns; ++c)
      for (std::int64_t token = (cells.first_column + c) * out.block;
           token < std::min((cells.first_column + c + 1) * out.block, n_tokens); ++token)
        if (token <= query)
          out.shares[static_cast<std::size_t>(token)] = cells.at(row - cells.first_row, c);
  }
  return out;
}

}  // namespace

ShownText attended_text(const RowsModel& model, const std::vector<std::string>& texts) {
  return shaded_text(str("Attention of the last ", model.rows, " rows of ", model.sample, ", ",
                         model.lines.front().label),
                     "of their attention", mean_shares(model), texts);
}

ShownText read_text(const profile::Reader& profile, std::size_t position, std::int64_t layer,
                    std::int64_t head, std::int64_t query, const std::vector<std::string>& texts) {
  const auto& sample = profile.samples()[position];
  const std::string place = str("L", layer, ".H", head);
  const auto what = [&](std::int64_t first, std::int64_t count) {
    return count == 1 ? str("What token ", first, " reads, ", place)
                      : str("What tokens ", first, " to ", first + count - 1,
                            " read in the mean, by blocks of ", count, ", ", place);
  };
  if (profile.has(position, profile::name::kRows)) {
    const auto rows = calibrate::read_attention(profile, position, layer, head);
    const std::int64_t row = query - (sample.n_tokens - rows.rows());
    if (row >= 0 && row < rows.rows()) {
      std::vector<double> shares;
      for (std::int64_t key = 0; key < sample.n_tokens; ++key)
        shares.push_back(static_cast<double>(rows(row, key)));
      return shaded_text(what(query, 1), "of its attention", shares, texts);
    }
  }
  const MapRow row = map_row(profile, {position, layer, head, Reduction::mean}, query);
  if (row.block == 0)
    fail(ErrorCode::usage, "no map was stored of the sample ", quoted(sample.id),
         ": 'kvatlas profile --capture maps --map-samples N' stores those of the first N samples");
  const std::int64_t first = query / row.block * row.block;
  return shaded_text(what(first, std::min(row.block, sample.n_tokens - first)),
                     "of their attention", row.shares, texts);
}

}  // namespace kvatlas::viewer
