// SPDX-License-Identifier: Apache-2.0
// The dialog that saves a policy document, or exports it for a runtime and shows before how the
// files in the folder would change. The document is made from the choices in the window, or it is
// one that was opened.
#pragma once

#include <QDialog>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "export/exporters.hpp"
#include "viewer/screens/session.hpp"
#include "viewer/threads/latest.hpp"

class QCheckBox;
class QComboBox;
class QLabel;
class QLineEdit;
class QListWidget;
class QPlainTextEdit;
class QPushButton;
class QSpinBox;

namespace kvatlas::viewer {

class PolicyDialog : public QDialog {
  Q_OBJECT

 public:
  enum class Purpose : std::uint8_t { save, for_runtime };
  /// `section` is the section of the document that is chosen first; empty: all sections.
  PolicyDialog(Session& session, Purpose purpose, const QString& folder, const QString& section,
               QWidget* parent);
  ~PolicyDialog() override;

  /// A file to be written, and the content that the file has now.
  struct Target {
    std::filesystem::path path;
    std::string content;
    std::optional<std::string> there;
  };
  const std::vector<Target>& targets() const { return targets_; }
  /// Whether all computing has ended, so that the dialog shows the result of the last change.
  bool is_settled() const { return settled_; }

 signals:
  void written(const QString& where);

 private:
  void make_rows();
  void read_document();
  void take_document(const calibrate::Document& document);
  void compute();
  void show_result(std::vector<Target> targets, const QString& remarks);
  void show_target(int row);
  void write();
  void fail_with(const QString& message);

  Session& session_;
  const Purpose purpose_;
  const QString first_section_;
  std::optional<calibrate::Document> document_;
  std::vector<Target> targets_;
  bool settled_ = false;
  int asked_ = 0;  // number of the last question; results of older ones are not shown
  QComboBox *source_, *runtime_, *section_, *task_;
  QSpinBox* length_;
  QLineEdit* where_;
  QListWidget* files_;
  QPlainTextEdit *preview_, *remarks_;
  QCheckBox* replace_;
  QLabel* problem_;
  QPushButton* write_;
  Latest computing_, writing_;
};

}  // namespace kvatlas::viewer
