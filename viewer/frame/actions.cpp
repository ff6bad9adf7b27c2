// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/actions.hpp"

#include <QCoreApplication>
#include <QSettings>
#include <algorithm>

namespace kvatlas::viewer {

namespace {

constexpr const char* kContext = "Actions";

// clang-format off
#define T(text) QT_TRANSLATE_NOOP("Actions", text)
const std::map<QString, const char*> kGroups = {
    {"file", T("File")},     {"edit", T("Edit")},  {"go", T("Go")},     {"in", T("In the view")},
    {"view", T("Window")},   {"theme", T("Look")}, {"help", T("Help")},
};
const std::vector<ActionEntry> kTable = {
    {"file.open", T("Open profile or policy…"), "Ctrl+O"},
    {"file.open_baseline", T("Open baseline…"), "Ctrl+Shift+O"},
    {"file.close_baseline", T("Close baseline"), ""},
    {"file.reload", T("Reload from disk"), "F5"},
    {"file.save_policy", T("Save policy document…"), "Ctrl+S"},
    {"file.export_view", T("Export view…"), "Ctrl+E"},
    {"file.export_policy", T("Export policy…"), "Ctrl+Shift+E"},
    {"file.search", T("Search the best policy…"), "Ctrl+Shift+S"},
    {"file.quit", T("Quit"), "Ctrl+Q"},

    {"edit.undo", T("Undo"), "Ctrl+Z"},
    {"edit.redo", T("Redo"), "Ctrl+Shift+Z; Ctrl+Y"},
    {"edit.copy_image", T("Copy image"), "Ctrl+Shift+C"},
    {"edit.copy_data", T("Copy data as CSV"), "Ctrl+Alt+C"},
    {"edit.copy_link", T("Copy link to this view"), "Ctrl+L"},
    {"edit.pin", T("Pin this view"), "P"},
    {"edit.note", T("Note on the selection…"), "N"},

    {"go.jump", T("Jump to…"), "Ctrl+P; /"},
    {"go.palette", T("Command palette…"), "Ctrl+Shift+P"},
    {"go.back", T("Back"), "Alt+Left"},
    {"go.forward", T("Forward"), "Alt+Right"},
    {"go.layer_up", T("Layer up"), "PgUp"},
    {"go.layer_down", T("Layer down"), "PgDown"},
    {"go.head_before", T("Head before"), ","},
    {"go.head_after", T("Head after"), "."},

    {"in.left", T("Left"), "Left", Act::left},
    {"in.right", T("Right"), "Right", Act::right},
    {"in.up", T("Up"), "Up", Act::up},
    {"in.down", T("Down"), "Down", Act::down},
    {"in.enter", T("Open what is in focus"), "Return; Enter", Act::enter},
    {"in.escape", T("One step out"), "Esc", Act::escape},
    {"in.zoom_in", T("Zoom in"), "W; +; =", Act::zoom_in},
    {"in.zoom_out", T("Zoom out"), "S; -", Act::zoom_out},
    {"in.pan_left", T("Pan left"), "A; Shift+Left", Act::pan_left},
    {"in.pan_right", T("Pan right"), "D; Shift+Right", Act::pan_right},
    {"in.pan_up", T("Pan up"), "Shift+Up", Act::pan_up},
    {"in.pan_down", T("Pan down"), "Shift+Down", Act::pan_down},
    {"in.centre", T("Centre the selection; again: fit it"), "F"},
    {"in.rectangle", T("Rectangle from the selection"), "R", Act::rectangle},
    {"in.filter", T("Filter the heads"), "Ctrl+F", Act::filter},
    {"in.next_scale", T("Logarithmic or linear"), "L", Act::next_scale},
    {"in.mask_sinks", T("Mask the sinks"), "M", Act::mask_sinks},
    {"in.reduction", T("Mean or maximum"), "X", Act::reduction},
    {"in.difference", T("Difference to the baseline"), "B", Act::difference},
    {"in.beside", T("The baseline beside"), "Shift+B", Act::beside},
    {"in.swipe", T("Swipe against the baseline"), "V", Act::swipe},
    {"in.handle_down", T("Threshold down by 0.01"), "[", Act::handle_down},
    {"in.handle_up", T("Threshold up by 0.01"), "]", Act::handle_up},
    {"in.handle_down_fast", T("Threshold down by 0.1"), "{; Shift+[", Act::handle_down_fast},
    {"in.handle_up_fast", T("Threshold up by 0.1"), "}; Shift+]", Act::handle_up_fast},

    {"view.table", T("Values as a table"), "T", {}, true},
    {"view.full_screen", T("This view in full screen"), "F11", {}, true},
    {"view.memory", T("Memory for maps…"), ""},
    {"view.save_layout", T("Save layout…"), ""},
    {"view.reset_layout", T("Standard layout"), ""},
    {"theme.light", T("Light"), "", {}, true},
    {"theme.dark", T("Dark"), "", {}, true},
    {"theme.system", T("As the system"), "", {}, true},
    {"help.keys", T("Keys…"), "?; F1"},
};
#undef T
// clang-format on

QList<QKeySequence> keys_of(const QString& text) {
  auto keys = QKeySequence::listFromString(text);
  keys.removeAll(QKeySequence());
  return keys;
}

}  // namespace

const std::vector<ActionEntry>& action_table() { return kTable; }

QString Actions::group_of(const ActionEntry& entry) {
  return QString::fromUtf8(entry.id).section('.', 0, 0);
}
QString Actions::title_of(const QString& group) {
  return QCoreApplication::translate(kContext, kGroups.at(group));
}
QString Actions::text_of(const ActionEntry& entry) {
  return QCoreApplication::translate(kContext, entry.text);
}

QList<QKeySequence> Actions::default_keys(const ActionEntry& entry) {
  return keys_of(QString::fromUtf8(entry.keys));
}

Actions::Actions(QSettings& settings, QObject* parent) : QObject(parent), settings_(settings) {
  for (const auto& entry : kTable) {
    auto* action = new QAction(text_of(entry), this);
    const auto id = QString::fromUtf8(entry.id);
    action->setObjectName(id);
    action->setCheckable(entry.checkable);
    const auto stored = settings_.value("keys/" + id);
    action->setShortcuts(stored.isValid() ? keys_of(stored.toString()) : default_keys(entry));
    actions_.push_back(action);
    by_id_[id] = action;
  }
}

QAction* Actions::operator[](const QString& id) const { return by_id_.at(id); }

const ActionEntry& Actions::entry(const QAction* action) const {
  const auto found = std::find(actions_.begin(), actions_.end(), action);
  return kTable[found - actions_.begin()];
}

QAction* Actions::for_key(const QKeySequence& key) const {
  for (auto* action : actions_)
    if (action->shortcuts().contains(key)) return action;
  return nullptr;
}

QAction* Actions::set_keys(QAction* action, const QList<QKeySequence>& keys) {
  for (const auto& key : keys)
    if (auto* other = for_key(key); other && other != action) return other;
  action->setShortcuts(keys);
  store(action);
  return nullptr;
}

void Actions::store(const QAction* action) {
  const auto name = "keys/" + action->objectName();
  if (action->shortcuts() == default_keys(entry(action)))
    settings_.remove(name);
  else
    settings_.setValue(name, QKeySequence::listToString(action->shortcuts()));
}

void Actions::reset_keys() {
  for (auto* action : actions_) {
    action->setShortcuts(default_keys(entry(action)));
    store(action);
  }
}

}  // namespace kvatlas::viewer
