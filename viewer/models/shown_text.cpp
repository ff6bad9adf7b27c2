// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/shown_text.hpp"

#include <algorithm>
#include <cmath>

#include "base/str.hpp"
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

ShownText attended_text(const RowsModel& model, const std::vector<std::string>& texts) {
  // The least share that has a shade: tokens that take less look alike.
  constexpr double kFloor = 1e-5;
  ShownText out{str("Attention of the last ", model.rows, " rows of ", model.sample, ", ",
                    model.lines.front().label),
                "of their attention",
                {},
                static_cast<std::size_t>(model.n_tokens),
                false};
  const std::vector<double> shares = mean_shares(model);
  double most = kFloor * 10;
  for (std::size_t i = 1; i < shares.size(); ++i)  // the first token takes most of all
    if (!std::isnan(shares[i])) most = std::max(most, shares[i]);
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const std::string piece = i < texts.size() ? texts[i] : str("#", i, " ");
    const double share = std::isnan(shares[i]) ? 0 : shares[i];
    const double shade =
        std::clamp(std::log(std::max(share, kFloor) / kFloor) / std::log(most / kFloor), 0.0, 1.0);
    out.tokens.push_back({piece, piece.find("⏎") != std::string::npos, shade, share, false});
  }
  return out;
}

}  // namespace kvatlas::viewer
