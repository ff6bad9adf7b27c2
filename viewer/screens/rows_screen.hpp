// SPDX-License-Identifier: Apache-2.0
// The screen of the last rows: which keys the end of the prompt looks at.
#pragma once

#include <memory>

#include "viewer/models/rows_model.hpp"
#include "viewer/screens/live_screen.hpp"

class QTableWidget;

namespace kvatlas::viewer {

class RowsScreen : public LiveScreen {
  Q_OBJECT

 public:
  RowsScreen(Session& session, QWidget* parent);
  bool act(Act act) override;
  Table table() const override { return top_; }
  QString focus_text() const override;

  enum class Lines : std::uint8_t { head, kv_group, all_heads, mean };
  void set_lines(Lines lines);
  /// The first of the keys that are shown, and the one past the last.
  std::pair<std::int64_t, std::int64_t> keys() const;
  const ChartView& lines_view() const { return *lines_view_; }

 protected:
  std::string arrays() const override;
  void read() override;
  void compute() override;
  void show_selection() override;

 private:
  struct Read {
    RowsModel model;
    std::vector<std::string> texts;
  };
  void show_keys(std::int64_t first, std::int64_t last);
  void show_table();
  RowsChoices rows_choices() const;

  ChartView *lines_view_, *heatmap_;
  QTableWidget* table_;
  QComboBox *dynamic_choice_, *lag_choice_;
  Lines lines_ = Lines::head;
  std::shared_ptr<const Read> read_of_;
  /// The keys that the charts were computed for.
  std::pair<std::int64_t, std::int64_t> computed_{0, 0};
  Table top_;
};

}  // namespace kvatlas::viewer
