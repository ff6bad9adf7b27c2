// SPDX-License-Identifier: Apache-2.0
// The jump box: places, and after '>' commands.
#include <QCoreApplication>
#include <algorithm>
#include <set>

#include "viewer/frame/main_window.hpp"
#include "viewer/methods/method_row.hpp"
#include "viewer/models/fuzzy.hpp"
#include "viewer/models/jump.hpp"
#include "viewer/models/link.hpp"

namespace kvatlas::viewer {

namespace {
constexpr std::size_t kMostCommands = 200;
}

JumpContext MainWindow::jump_context() const {
  JumpContext context;
  for (const auto& entry : entries_)
    context.screens.push_back(
        {entry.id, QCoreApplication::translate("Screens", entry.title).toStdString()});
  for (const MethodRow& row : method_rows())
    context.policies.push_back({row.method->name, row.screen});
  const auto* profile = session_.profile();
  if (!profile) return context;
  const auto& selection = session_.selection().current();
  context.layers = profile->header().n_layers;
  context.heads = profile->header().n_heads;
  context.layer = selection.layer;
  std::set<std::string> tasks;
  for (const auto& sample : profile->samples()) {
    context.samples.push_back(sample.id);
    tasks.insert(sample.task);
  }
  context.tasks.assign(tasks.begin(), tasks.end());
  if (selection.sample < profile->samples().size())
    context.tokens = profile->samples()[selection.sample].n_tokens;
  context.predicates = session_.evidence().words();
  context.token_texts = facts_->token_texts();
  return context;
}

Suggestions MainWindow::suggest(const QString& text) {
  if (text.startsWith('>')) return suggest_actions(text.mid(1).trimmed());
  Suggestions out;
  if (is_link(text.toStdString())) {
    out.list.push_back({tr("Follow the link"), text, [this, text] { open_all({text}); }});
    return out;
  }
  auto answer = find_jumps(text.toStdString(), jump_context());
  for (auto& found : answer.jumps) {
    const auto title = QString::fromStdString(found.title);
    const auto detail = QString::fromStdString(found.detail);
    out.list.push_back({title, detail, [this, found = std::move(found)] { take(found); }});
  }
  out.problem = QString::fromStdString(answer.problem);
  if (text.trimmed().isEmpty())
    out.problem =
        tr("A place (L12.H3, q5120, k17, s2), a screen, policy, task, sample, token text, "
           "or layers: lazy, not lazy. After > a command.");
  return out;
}

Suggestions MainWindow::suggest_actions(const QString& text) {
  std::vector<std::pair<int, QAction*>> found;
  auto all = actions_->all();
  all.insert(all.end(), screen_actions_.begin(), screen_actions_.end());
  for (auto* action : all)
    if (const auto score =
            fuzzy_score(text.toStdString(), action->text().remove('&').toStdString()))
      found.emplace_back(*score + (action->isEnabled() ? 0 : -100), action);
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  Suggestions out;
  for (const auto& [score, action] : found) {
    if (out.list.size() == kMostCommands) break;
    out.list.push_back({action->text().remove('&'),
                        action->shortcut().toString(QKeySequence::NativeText),
                        [action = action] { action->trigger(); }, action->isEnabled()});
  }
  if (out.list.empty()) out.problem = tr("There is no command “%1”.").arg(text);
  return out;
}

void MainWindow::jump(const QString& text) {
  const auto suggestions = suggest(text);
  if (suggestions.list.empty())
    banners_->show_message({.text = suggestions.problem});
  else
    suggestions.list.front().take();
}

void MainWindow::take(const Jump& jump) {
  Selection selection = session_.selection().current();
  if (jump.sample && *jump.sample != selection.sample) {
    selection.sample = *jump.sample;
    selection.query = selection.key = -1;
    selection.region.reset();
  }
  if (jump.layer) selection.layer = *jump.layer;
  if (jump.head) selection.head = *jump.head;
  if (jump.query) selection.query = *jump.query;
  if (jump.key) selection.key = *jump.key;
  // A query does not see keys after it.
  if (jump.query && !jump.key && selection.key > selection.query) selection.key = -1;
  if (jump.key && !jump.query && selection.query >= 0 && selection.query < selection.key)
    selection.query = -1;
  session_.selection().set(selection);
  if (jump.task) session_.choose_task(*jump.task);
  if (!jump.screen.empty()) show_screen(QString::fromStdString(jump.screen));
}

}  // namespace kvatlas::viewer
