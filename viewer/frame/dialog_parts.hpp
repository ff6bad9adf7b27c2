// SPDX-License-Identifier: Apache-2.0
// Controls that several dialogs of the window have alike.
#pragma once

#include <QString>
#include <cstdint>

#include "viewer/screens/control_bar.hpp"

class QHBoxLayout;
class QInputDialog;
class QLineEdit;
class QSpinBox;
class QWidget;

namespace kvatlas::viewer {

inline constexpr int kMostTokens = 100'000'000;

/// A box for a number of tokens, from 1 to kMostTokens.
QSpinBox* new_token_box(QWidget* parent);
/// The number of tokens that such a box can show and that is nearest to this one.
int in_token_box(std::int64_t tokens);

enum class PathUse { read, write, write_into_folder };
/// The line for a path, and beside it a button that asks for another path in a dialog of this
/// title. Whether a file that exists is replaced is asked elsewhere.
QHBoxLayout* path_row(QLineEdit* path, const QString& title, PathUse use);

/// A dialog that asks for one text or number, and goes when it is closed.
QInputDialog* new_question(QWidget* parent, const QString& title, const QString& label);

}  // namespace kvatlas::viewer
