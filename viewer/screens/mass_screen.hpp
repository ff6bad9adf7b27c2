// SPDX-License-Identifier: Apache-2.0
// The screen with the heatmap of proximal mass by layer and token.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "viewer/models/mass_model.hpp"
#include "viewer/screens/live_screen.hpp"

namespace kvatlas::viewer {

class MassScreen : public LiveScreen {
  Q_OBJECT

 public:
  MassScreen(Session& session, QWidget* parent);
  bool act(Act act) override;
  QString focus_text() const override;

  const MassView& view() const { return view_; }
  ChartView& heatmap_chart() const { return *heatmap_; }

 protected:
  std::string arrays() const override;
  void read() override;
  void compute() override;
  void show_selection() override;

 private:
  void make_controls();
  void make_charts();
  void show_all_tokens();
  void select_cell(std::int64_t layer, std::int64_t column);
  /// The column at or before the chosen query; 0 if there is none.
  std::int64_t chosen_column() const;

  struct Read {
    MassModel model;
    std::vector<std::string> texts;  // texts of the prompt's tokens
  };
  ChartView *heatmap_, *shares_;
  QComboBox* rows_;
  std::shared_ptr<const Read> read_of_;
  MassModel shown_;  // the part of the model that is shown
  MassView view_;
  /// The chosen token if it was generated, for a selection only holds tokens of the prompt.
  std::int64_t generated_ = -1;
  /// The tokens that the part was computed for.
  std::optional<std::pair<std::int64_t, std::int64_t>> computed_;
};

}  // namespace kvatlas::viewer
