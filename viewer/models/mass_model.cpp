// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/mass_model.hpp"

#include <algorithm>
#include <cmath>

#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/str.hpp"
#include "calibrate/rules/read_evidence.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace {

namespace name = profile::name;

void read_along(const profile::Reader& profile, std::size_t position, MassModel& model) {
  calibrate::require_captured(profile, name::kRowMass, "default,heatmap");
  if (!profile.has(position, name::kRowMass) || !profile.has(position, name::kRowPositions))
    fail(ErrorCode::usage, "sample ", model.sample, " has no masses along its prompt");
  const auto masses = calibrate::read_proximity(profile, position, name::kRowMass, model.keep,
                                                calibrate::RowsOf::layers);
  const profile::Array found = profile.array(position, name::kRowPositions);
  const auto positions = found.values<std::int32_t>();
  if (found.type != profile::Type::i32 || std::ssize(positions) != masses.cols())
    fail(ErrorCode::unreadable, "the profile has ", masses.size(), " masses for ", positions.size(),
         " rows of ", model.layers, " layers");
  model.positions.assign(positions.begin(), positions.end());
  model.masses = masses.cast<double>();
}

/// The columns of tokens. Rows before the prompt's begin, and steps after the answer's end, are NaN
/// in all layers.
std::vector<std::int64_t> known_columns(const calibrate::StoredRows& rows) {
  std::vector<std::int64_t> known;
  for (std::int64_t column = 0; column < rows.cols(); ++column)
    if (!std::isnan(rows(0, column))) known.push_back(column);
  return known;
}

/// The mean over heads, as of strided rows and of generated tokens.
void read_last(const profile::Reader& profile, std::size_t position, MassModel& model) {
  calibrate::require_captured(profile, name::kMass, "lazy");
  const auto prompt = calibrate::read_proximity(profile, position, name::kMass, model.keep,
                                                calibrate::RowsOf::heads);
  calibrate::StoredRows generated(model.layers, 0);
  if (profile.has(name::kGeneratedMass))
    generated = calibrate::read_proximity(profile, position, name::kGeneratedMass, model.keep,
                                          calibrate::RowsOf::layers);
  const auto rows = known_columns(prompt), steps = known_columns(generated);
  for (const auto row : rows) model.positions.push_back(model.prompt_tokens - prompt.cols() + row);
  for (const auto step : steps) model.positions.push_back(model.prompt_tokens + step);
  model.masses.resize(model.layers, std::ssize(model.positions));
  const auto heads = prompt.rows() / model.layers;
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    model.masses.row(layer)
        << prompt(Eigen::seqN(layer * heads, heads), rows).cast<double>().colwise().mean(),
        generated(layer, steps).cast<double>();
}

std::string column_text(const MassModel& model, std::int64_t position,
                        const std::vector<std::string>& texts) {
  if (position >= model.prompt_tokens)
    return str(position, " generated ", position - model.prompt_tokens + 1);
  const auto at = static_cast<std::size_t>(position);
  return at < texts.size() ? str(position, " ", texts[at]) : str(position);
}

}  // namespace

bool has_mass_rows(const profile::Reader& profile, MassRows rows) {
  return profile.has(rows == MassRows::along ? name::kRowMass : name::kMass);
}

MassModel read_mass_model(const profile::Reader& profile, std::size_t position,
                          kernels::Proximity keep, MassRows rows) {
  if (position >= profile.samples().size())
    fail(ErrorCode::usage, "there is no sample ", position, " in the profile");
  const auto& sample = profile.samples()[position];
  MassModel model{sample.id,       keep, rows, calibrate::cache_shape(profile.header()).layers,
                  sample.n_tokens, {},   {}};
  if (rows == MassRows::along)
    read_along(profile, position, model);
  else
    read_last(profile, position, model);
  if (model.positions.empty() || !std::is_sorted(model.positions.begin(), model.positions.end()))
    fail(ErrorCode::usage, "sample ", model.sample, " has no masses of ",
         rows == MassRows::along ? "rows along its prompt" : "its last rows");
  return model;
}

MassModel part_of(const MassModel& model, std::int64_t first, std::int64_t last) {
  const auto& positions = model.positions;
  const auto column = [&](std::int64_t token) {
    return std::lower_bound(positions.begin(), positions.end(), token) - positions.begin();
  };
  auto from = column(first), to = column(last);
  if (from == to) {  // between two rows
    from = std::max<std::ptrdiff_t>(from - 1, 0);
    to = from + 1;
  }
  MassModel part = model;
  part.positions.assign(positions.begin() + from, positions.begin() + to);
  part.masses = model.masses.middleCols(from, to - from);
  return part;
}

MassView mass_view(const MassModel& model, double threshold,
                   const std::vector<std::string>& texts) {
  MassView view;
  const std::int64_t columns = model.masses.cols();
  Chart& chart = view.heatmap;
  chart.title = str("Proximal mass of ", model.sample, ": initial ", model.keep.initial,
                    ", recent ", model.keep.recent);
  chart.notes.push_back(
      model.rows == MassRows::along
          ? str(columns, " rows along a prompt of ", model.prompt_tokens,
                " tokens; a layer is lazy at a token if its mass is above the threshold")
          : str("the prompt's last rows, from ", model.prompt_tokens,
                " on the generated tokens; 'kvatlas profile --capture default,heatmap' takes rows "
                "along the whole prompt"));
  chart.x = {"token",         "", {}, {{-0.5, static_cast<double>(columns) - 0.5}}, false,
             AxisKind::tokens};
  chart.y = layer_axis(model.layers);
  chart.table.columns = {{"layer"}, {"token"}, {"text"}, {"mass", "share"}, {"lazy"}};
  Matrix matrix{"proximal mass", "share", {}, {}, {}};
  matrix.contour = threshold;
  for (const auto position : model.positions) {
    matrix.column_labels.push_back(str(position));
    matrix.column_texts.push_back("token " + column_text(model, position, texts));
  }
  Bars bars{"tokens at which it is lazy", {}};
  for (std::int64_t l = 0; l < model.layers; ++l) {
    matrix.row_labels.push_back(str(l));
    std::int64_t lazy = 0, known = 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      const double mass = model.masses(l, c);
      matrix.values.push_back(mass);
      const bool is_lazy = calibrate::is_lazy(mass, threshold);
      known += !std::isnan(mass);
      lazy += is_lazy;
      chart.table.rows.push_back({l, model.positions[c],
                                  column_text(model, model.positions[c], texts), mass,
                                  is_lazy ? "yes" : ""});
    }
    view.lazy_shares.push_back(known > 0 ? static_cast<double>(lazy) / static_cast<double>(known)
                                         : kNoNumber);
    bars.bars.push_back(
        {static_cast<double>(l), view.lazy_shares.back(), percent_text(view.lazy_shares.back())});
  }
  chart.matrices.push_back(std::move(matrix));
  chart.marks.push_back({"threshold", threshold, false, Handle::lazy_threshold, Emphasis::strong});

  Chart& shares = view.shares;
  shares.title = str("Tokens at which a layer is lazy, threshold ", fixed_text(threshold, 3));
  shares.x = layer_axis(model.layers);
  shares.y = {"tokens", "share", {}, {{0, 1}}};
  shares.table.columns = {{"layer"}, {"lazy tokens", "share"}};
  for (const auto& bar : bars.bars) shares.table.rows.push_back({bar.x, bar.height});
  shares.bars.push_back(std::move(bars));
  return view;
}

}  // namespace kvatlas::viewer
