// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/search_dialog.hpp"

#include <QCheckBox>
#include <QComboBox>
#include <QDialogButtonBox>
#include <QDir>
#include <QDoubleSpinBox>
#include <QFileInfo>
#include <QFontDatabase>
#include <QFormLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QPlainTextEdit>
#include <QPushButton>
#include <QSettings>
#include <QSpinBox>
#include <QVBoxLayout>
#include <algorithm>

#include "base/error.hpp"
#include "calibrate/runtimes/runtimes.hpp"
#include "viewer/frame/dialog_parts.hpp"

namespace kvatlas::viewer {

namespace {

constexpr int kMostLines = 5000;
enum Limit : std::uint8_t { kSaving, kMemory };

/// Under which the model of a profile is remembered.
QString model_key(const OpenedProfile* profile) {
  return profile ? QStringLiteral("search/model/%1")
                       .arg(QString::fromStdString(profile->header().model_fingerprint))
                 : QStringLiteral("search/model/none");
}

}  // namespace

SearchDialog::SearchDialog(Session& session, SearchJob& job, QSettings& settings, QWidget* parent)
    : QDialog(parent), session_(session), job_(job), settings_(settings) {
  setWindowTitle(tr("Search the best policy"));
  resize(820, 620);
  make_rows();
  connect(&session_, &Session::profile_changed, this, &SearchDialog::take_profile);
  connect(&job_, &SearchJob::started, log_, &QPlainTextEdit::clear);
  connect(&job_, &SearchJob::said, log_, &QPlainTextEdit::appendPlainText);
  connect(&job_, &SearchJob::ended, this, &SearchDialog::show_end);
  take_profile();
}

void SearchDialog::make_rows() {
  wishes_ = new QWidget(this);
  auto* form = new QFormLayout(wishes_);
  form->setContentsMargins({});
  const auto add = [&](const QString& words, QWidget* control, const char* name,
                       const QString& hint, QHBoxLayout* row = nullptr) {
    control->setObjectName(name);
    control->setAccessibleName(words);
    control->setToolTip(hint);
    control->setMinimumHeight(kControlHeight);
    row ? form->addRow(words, row) : form->addRow(words, control);
  };
  model_ = new QLineEdit(wishes_);
  add(tr("Model"), model_, "model",
      tr("The GGUF file, or the folder of a checkpoint, that the profile was taken of."),
      path_row(model_, tr("Model"), PathUse::read));
  profile_ = new QLabel(wishes_);
  profile_->setTextFormat(Qt::PlainText);
  form->addRow(tr("Profile"), profile_);
  limit_ = new QComboBox(wishes_);
  limit_->addItems({tr("Save at least this share of the cache"),
                    tr("Fit weights and all caches into this memory")});
  saving_ = new QDoubleSpinBox(wishes_);
  saving_->setObjectName("saving");
  saving_->setAccessibleName(tr("Share of the cache to save"));
  saving_->setRange(1, 99);
  saving_->setDecimals(0);
  saving_->setSuffix(tr(" %"));
  saving_->setValue(50);
  memory_ = new QLineEdit(QStringLiteral("8GiB"), wishes_);
  memory_->setObjectName("memory");
  memory_->setAccessibleName(tr("Memory"));
  memory_->setToolTip(tr("Such as 24GiB"));
  auto* limit_row = new QHBoxLayout;
  limit_row->addWidget(limit_, 1);
  for (QWidget* amount : {static_cast<QWidget*>(saving_), static_cast<QWidget*>(memory_)}) {
    amount->setMinimumHeight(kControlHeight);
    limit_row->addWidget(amount);
  }
  add(tr("Memory"), limit_, "limit", tr("What must fit, at this context and batch."), limit_row);
  context_ = new_token_box(wishes_);
  context_->setGroupSeparatorShown(true);
  context_->setValue(4096);
  add(tr("Context"), context_, "context", tr("Prompt tokens that must fit."));
  batch_ = new QSpinBox(wishes_);
  batch_->setRange(1, kMostTokens);
  batch_->setGroupSeparatorShown(true);
  add(tr("Batch"), batch_, "batch", tr("Sequences at a time."));
  loss_ = new QDoubleSpinBox(wishes_);
  loss_->setRange(0, 100);
  loss_->setDecimals(1);
  loss_->setValue(1);
  loss_->setSuffix(tr(" points"));
  add(tr("Loss allowed"), loss_, "loss", tr("Points of the score that the policy may lose."));
  runtime_ = new QComboBox(wishes_);
  runtime_->addItem(tr("any: as the methods are defined"), QString());
  for (const auto& runtime : calibrate::runtimes())
    runtime_->addItem(QString::fromStdString(runtime.title), QString::fromStdString(runtime.name));
  add(tr("Runtime"), runtime_, "runtime",
      tr("Policies are tried as this runtime carries them out."));
  output_ = new QLineEdit(wishes_);
  add(tr("Write to"), output_, "output",
      tr("The policy document, with the front that it was chosen from."),
      path_row(output_, tr("Write the policy to"), PathUse::write));
  replace_ = new QCheckBox(tr("Replace the file that is there"), wishes_);
  replace_->setObjectName("replace");
  form->addRow({}, replace_);

  state_ = new QLabel(this);
  state_->setObjectName("state");
  state_->setTextFormat(Qt::PlainText);
  state_->setWordWrap(true);
  log_ = new QPlainTextEdit(this);
  log_->setObjectName("log");
  log_->setReadOnly(true);
  log_->setMaximumBlockCount(kMostLines);
  log_->setFont(QFontDatabase::systemFont(QFontDatabase::FixedFont));
  log_->setAccessibleName(tr("What the search says"));
  auto* buttons = new QDialogButtonBox(QDialogButtonBox::Close, this);
  start_ = buttons->addButton(tr("Start"), QDialogButtonBox::ActionRole);
  start_->setObjectName("start");
  stop_ = buttons->addButton(tr("Stop"), QDialogButtonBox::ActionRole);
  stop_->setObjectName("stop");
  auto* column = new QVBoxLayout(this);
  column->addWidget(wishes_);
  column->addWidget(state_);
  column->addWidget(log_, 1);
  column->addWidget(buttons);

  connect(limit_, &QComboBox::currentIndexChanged, this, &SearchDialog::refresh);
  for (const QLineEdit* edit : {model_, memory_, output_})
    connect(edit, &QLineEdit::textChanged, this, &SearchDialog::refresh);
  connect(replace_, &QCheckBox::toggled, this, &SearchDialog::refresh);
  connect(start_, &QPushButton::clicked, this, &SearchDialog::start);
  connect(stop_, &QPushButton::clicked, this, [this] {
    job_.stop();
    refresh();
  });
  connect(buttons, &QDialogButtonBox::rejected, this, &QDialog::close);
}

void SearchDialog::take_profile() {
  const auto* profile = session_.profile();
  const QString path = profile ? QString::fromStdString(profile->path().string()) : QString();
  profile_->setText(profile ? QFileInfo(path).fileName()
                            : tr("none is open: the model is profiled first, beside the policy"));
  profile_->setToolTip(path);
  model_->setText(settings_.value(model_key(profile)).toString());
  if (profile) {
    std::int64_t longest = 1;
    for (const auto& sample : profile->samples()) longest = std::max(longest, sample.n_tokens);
    context_->setValue(in_token_box(longest));
  }
  const QString folder = profile ? QFileInfo(path).path() : QDir::currentPath();
  output_->setText(folder + "/policy-auto.json");
  refresh();
}

SearchForm SearchDialog::request() const {
  SearchForm request;
  // The child has the window's folder as its own.
  request.model = model_->text().trimmed().toStdString();
  if (const auto* profile = session_.profile()) request.profile = profile->path().string();
  if (limit_->currentIndex() == kSaving)
    request.saving = saving_->value() / 100;
  else
    request.memory = memory_->text().trimmed().toStdString();
  request.context = context_->value();
  request.batch = batch_->value();
  request.max_loss = loss_->value();
  request.runtime = runtime_->currentData().toString().toStdString();
  request.output = output_->text().trimmed().toStdString();
  request.replace = replace_->isChecked();
  return request;
}

void SearchDialog::refresh() {
  saving_->setVisible(limit_->currentIndex() == kSaving);
  memory_->setVisible(limit_->currentIndex() == kMemory);
  const bool runs = job_.is_running();
  wishes_->setEnabled(!runs);
  stop_->setEnabled(runs);
  const bool there = QFileInfo::exists(output_->text().trimmed());
  replace_->setVisible(there);
  start_->setEnabled(false);
  if (runs) return;
  try {
    const auto words = search_words(request());
    const bool goes_on = std::find(words.begin(), words.end(), "--resume") != words.end();
    start_->setEnabled(true);
    start_->setText(goes_on ? tr("Go on") : tr("Start"));
    state_->setText(goes_on ? tr("A search of this file was interrupted: it goes on where it was, "
                                 "if what is asked is the same.")
                            : tr("Policies are ranked by the attention that they lose in the "
                                 "profile, and the best are tried on the model. This takes "
                                 "minutes to hours; it may be stopped and go on later."));
  } catch (const Error& error) {
    state_->setText(QString::fromUtf8(error.what()));
  }
}

void SearchDialog::start() {
  try {
    job_.start(request());
    settings_.setValue(model_key(session_.profile()), model_->text().trimmed());
    if (job_.is_running())
      state_->setText(tr("The search runs. It goes on when this window is closed."));
    replace_->setChecked(false);
  } catch (const Error& error) {
    state_->setText(QString::fromUtf8(error.what()));
  }
  wishes_->setEnabled(!job_.is_running());
  start_->setEnabled(!job_.is_running());
  stop_->setEnabled(job_.is_running());
}

void SearchDialog::show_end(SearchJob::End end) {
  refresh();
  switch (end) {
    case SearchJob::End::found:
      return state_->setText(tr("Found: the front is on the comparison screen."));
    case SearchJob::End::not_met:
      return state_->setText(
          tr("Nothing meets what was asked; the last lines say how near one can "
             "get and what to relax."));
    case SearchJob::End::stopped:
      return state_->setText(tr("Stopped. What was tried is kept: the search can go on."));
    case SearchJob::End::failed:
      return state_->setText(tr("The search failed: %1").arg(job_.last_line()));
  }
}

}  // namespace kvatlas::viewer
