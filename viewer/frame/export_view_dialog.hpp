// SPDX-License-Identifier: Apache-2.0
// The dialog that saves the view in front as a PNG, SVG, PDF or CSV file.
#pragma once

#include <QDialog>

#include "viewer/draw/picture.hpp"

class QCheckBox;
class QComboBox;
class QDoubleSpinBox;
class QLabel;
class QLineEdit;
class QPushButton;

namespace kvatlas::viewer {

class ExportViewDialog : public QDialog {
  Q_OBJECT

 public:
  ExportViewDialog(PicturePtr picture, const Theme& theme, Origin origin, const QString& path,
                   QWidget* parent);

 signals:
  void written(const QString& path);

 private:
  void refresh();
  void save();

  PicturePtr picture_;
  Theme theme_;
  Origin origin_;
  QComboBox* format_;
  QDoubleSpinBox* scale_;
  QCheckBox *transparent_, *light_;
  QLineEdit* path_;
  QLabel *size_, *problem_;
  QPushButton* save_;
};

}  // namespace kvatlas::viewer
