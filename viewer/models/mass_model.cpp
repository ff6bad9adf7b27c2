// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/mass_model.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "analyzer/profile/checked_arrays.hpp"
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
  const auto masses =
      profile::floats_of(profile, position, name::kRowMass,
                         {calibrate::proximity_row(profile, model.keep)}, {model.layers});
  const profile::Array found = profile.array(position, name::kRowPositions);
  const auto positions = found.values<std::int32_t>();
  if (found.type != profile::Type::i32 ||
      positions.size() * static_cast<std::size_t>(model.layers) != masses.size())
    fail(ErrorCode::unreadable, "the profile has ", masses.size(), " masses for ", positions.size(),
         " rows of ", model.layers, " layers");
  model.positions.assign(positions.begin(), positions.end());
  model.masses.assign(masses.begin(), masses.end());
}

/// The mean over heads, as of strided rows and of generated tokens.
void read_last(const profile::Reader& profile, std::size_t position, MassModel& model) {
  calibrate::require_captured(profile, name::kMass, "lazy");
  const std::int64_t row = calibrate::proximity_row(profile, model.keep),
                     heads = profile.header().n_heads;
  const auto prompt =
      profile::floats_of(profile, position, name::kMass, {row}, {model.layers, heads});
  std::vector<float> generated;
  if (profile.has(name::kGeneratedMass))
    generated = profile::floats_of(profile, position, name::kGeneratedMass, {row}, {model.layers});
  using Rows = Eigen::Array<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto steps = std::ssize(generated) / model.layers;
  const auto rows = std::ssize(prompt) / model.layers / heads;
  const Eigen::Map<const Rows> of_prompt(prompt.data(), model.layers * heads, rows);
  const Eigen::Map<const Rows> of_steps(generated.data(), model.layers, steps);
  // Rows before the prompt's begin, and steps after the answer's end, are NaN in all layers.
  std::vector<Eigen::Index> prompt_rows, shown_steps;
  for (Eigen::Index r = 0; r < rows; ++r)
    if (!std::isnan(of_prompt(0, r))) prompt_rows.push_back(r);
  for (Eigen::Index s = 0; s < steps; ++s)
    if (!std::isnan(of_steps(0, s))) shown_steps.push_back(s);
  for (const auto r : prompt_rows) model.positions.push_back(model.prompt_tokens - rows + r);
  for (const auto s : shown_steps) model.positions.push_back(model.prompt_tokens + s);
  for (std::int64_t l = 0; l < model.layers; ++l) {
    const auto of_layer = of_prompt.middleRows(l * heads, heads).cast<double>();
    for (const auto r : prompt_rows) model.masses.push_back(of_layer.col(r).mean());
    for (const auto s : shown_steps) model.masses.push_back(of_steps(l, s));
  }
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
  part.masses.clear();
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const auto row = model.masses.begin() + layer * std::ssize(positions);
    part.masses.insert(part.masses.end(), row + from, row + to);
  }
  return part;
}

MassView mass_view(const MassModel& model, double threshold,
                   const std::vector<std::string>& texts) {
  MassView view;
  const std::size_t columns = model.positions.size();
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
  Matrix matrix{"proximal mass", "share", {}, {}, model.masses};
  matrix.contour = threshold;
  for (const auto position : model.positions) {
    matrix.column_labels.push_back(str(position));
    matrix.column_texts.push_back("token " + column_text(model, position, texts));
  }
  Bars bars{"tokens at which it is lazy", {}};
  for (std::size_t l = 0; l < static_cast<std::size_t>(model.layers); ++l) {
    matrix.row_labels.push_back(str(l));
    std::size_t lazy = 0, known = 0;
    for (std::size_t c = 0; c < columns; ++c) {
      const double mass = model.masses[l * columns + c];
      const bool is_lazy = calibrate::is_lazy(mass, threshold);
      known += !std::isnan(mass);
      lazy += is_lazy;
      chart.table.rows.push_back({static_cast<double>(l), static_cast<double>(model.positions[c]),
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
