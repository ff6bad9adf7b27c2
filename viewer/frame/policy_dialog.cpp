// SPDX-License-Identifier: Apache-2.0
#include "viewer/frame/policy_dialog.hpp"

#include <QCheckBox>
#include <QComboBox>
#include <QDialogButtonBox>
#include <QFontDatabase>
#include <QFormLayout>
#include <QLabel>
#include <QLineEdit>
#include <QListWidget>
#include <QPlainTextEdit>
#include <QPushButton>
#include <QSignalBlocker>
#include <QSpinBox>
#include <QSplitter>
#include <QVBoxLayout>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/error.hpp"
#include "base/whole_file.hpp"
#include "viewer/frame/dialog_parts.hpp"
#include "viewer/methods/choices_document.hpp"
#include "viewer/models/text_diff.hpp"

namespace kvatlas::viewer {

namespace {

namespace fs = std::filesystem;
constexpr std::uintmax_t kLargestShown = std::uintmax_t{4} << 20;
// Sources that are no opened document.
constexpr int kChoices = -1, kFrontPoint = -2;

std::optional<std::string> content_of(const fs::path& path) {
  std::error_code problem;
  if (!fs::exists(path, problem)) return std::nullopt;
  const auto bytes = fs::file_size(path, problem);
  if (problem || bytes > kLargestShown) return "(not a file that can be shown)\n";
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string fit_text(const calibrate::Runtime& runtime) {
  std::string text = str(runtime.title, " ", runtime.versions, "\n");
  for (const auto& form : calibrate::kForms) {
    const auto& expression = runtime.form(form.form);
    text += str(form.text, ": ",
                expression.fit == calibrate::Fit::exact         ? "exact"
                : expression.fit == calibrate::Fit::approximate ? "approximate"
                                                                : "cannot be expressed");
    for (const auto loss : expression.losses) text += str("; ", calibrate::loss_text(loss));
    if (!expression.note.empty()) text += str("; ", expression.note);
    text += "\n";
  }
  return text;
}

}  // namespace

PolicyDialog::PolicyDialog(Session& session, Purpose purpose, const QString& folder,
                           const QString& section, QWidget* parent)
    : QDialog(parent), session_(session), purpose_(purpose), first_section_(section) {
  setAttribute(Qt::WA_DeleteOnClose);
  setWindowTitle(purpose == Purpose::save ? tr("Save policy document") : tr("Export policy"));
  resize(900, 620);
  make_rows();
  where_->setText(purpose == Purpose::save ? folder + "/policy.json" : folder);
  connect(&computing_, &Latest::failed, this, &PolicyDialog::fail_with);
  connect(&writing_, &Latest::failed, this, &PolicyDialog::fail_with);
  // What the files would be of may go while this is open.
  connect(&session_, &Session::profile_changed, this, &QDialog::close);
  connect(&session_, &Session::documents_changed, this, &QDialog::close);
  connect(&session_.evidence(), &EvidenceCache::changed, this, [this] {
    if (!document_ && source_->currentData().toInt() == kChoices) read_document();
  });
  read_document();
}

PolicyDialog::~PolicyDialog() = default;

void PolicyDialog::make_rows() {
  auto* form = new QFormLayout;
  const auto add = [&](const QString& words, QWidget* control, const char* name, bool shown) {
    control->setObjectName(name);
    control->setAccessibleName(words);
    control->setMinimumHeight(kControlHeight);
    form->addRow(words, control);
    form->labelForField(control)->setVisible(shown);
    control->setVisible(shown);
  };
  const bool for_runtime = purpose_ == Purpose::for_runtime;
  source_ = new QComboBox(this);
  if (const auto& front = session_.choices().front; front.document)
    source_->addItem(
        tr("The chosen point of the front: %1").arg(QString::fromStdString(front.policy)),
        kFrontPoint);
  if (session_.profile()) source_->addItem(tr("The choices made in this window"), kChoices);
  for (std::size_t i = 0; i < session_.documents().size(); ++i)
    source_->addItem(QString::fromStdString(session_.documents()[i].path.filename().string()),
                     static_cast<int>(i));
  add(tr("Policy"), source_, "source", true);
  runtime_ = new QComboBox(this);
  for (const auto& runtime : calibrate::runtimes()) {
    runtime_->addItem(QString::fromStdString(runtime.title), QString::fromStdString(runtime.name));
    runtime_->setItemData(runtime_->count() - 1, QString::fromStdString(fit_text(runtime)),
                          Qt::ToolTipRole);
  }
  add(tr("Runtime"), runtime_, "runtime", for_runtime);
  section_ = new QComboBox(this);
  add(tr("Part of it"), section_, "section", for_runtime);
  task_ = new QComboBox(this);
  task_->addItem(tr("all"), QString());
  if (const auto* profile = session_.profile()) {
    QStringList tasks;
    for (const auto& sample : profile->samples()) tasks << QString::fromStdString(sample.task);
    tasks.removeDuplicates();
    for (const auto& task : tasks) task_->addItem(task, task);
  }
  add(tr("Budgets of task"), task_, "task", for_runtime);
  length_ = new_token_box(this);
  length_->setValue(in_token_box(session_.choices().length));
  length_->setKeyboardTracking(false);
  add(tr("Prompt length of ratios"), length_, "length", for_runtime);
  where_ = new QLineEdit(this);
  where_->setObjectName("where");
  where_->setAccessibleName(for_runtime ? tr("Folder") : tr("File"));
  form->addRow(where_->accessibleName(),
               for_runtime ? path_row(where_, tr("Folder to write to"), PathUse::write_into_folder)
                           : path_row(where_, tr("Save to"), PathUse::write));

  files_ = new QListWidget(this);
  files_->setObjectName("files");
  files_->setAccessibleName(tr("Files that will be written"));
  preview_ = new QPlainTextEdit(this);
  preview_->setObjectName("preview");
  preview_->setReadOnly(true);
  preview_->setFont(QFontDatabase::systemFont(QFontDatabase::FixedFont));
  preview_->setAccessibleName(tr("What the file will hold; changed lines begin with + and -"));
  remarks_ = new QPlainTextEdit(this);
  remarks_->setObjectName("remarks");
  remarks_->setReadOnly(true);
  remarks_->setMaximumHeight(110);
  remarks_->setAccessibleName(tr("What the runtime cannot express"));
  remarks_->setVisible(for_runtime);
  auto* split = new QSplitter(this);
  split->addWidget(files_);
  split->addWidget(preview_);
  split->setStretchFactor(1, 3);
  replace_ = new QCheckBox(tr("Replace files that are there and differ"), this);
  replace_->setObjectName("replace");
  problem_ = new QLabel(this);
  problem_->setObjectName("problem");
  problem_->setWordWrap(true);
  auto* buttons = new QDialogButtonBox(QDialogButtonBox::Close, this);
  write_ = buttons->addButton(purpose_ == Purpose::save ? tr("Save") : tr("Write files"),
                              QDialogButtonBox::ActionRole);
  write_->setObjectName("write");
  auto* column = new QVBoxLayout(this);
  column->addLayout(form);
  column->addWidget(split, 1);
  column->addWidget(remarks_);
  column->addWidget(replace_);
  column->addWidget(problem_);
  column->addWidget(buttons);

  connect(source_, &QComboBox::currentIndexChanged, this, &PolicyDialog::read_document);
  for (auto* combo : {runtime_, section_, task_})
    connect(combo, &QComboBox::currentIndexChanged, this, &PolicyDialog::compute);
  connect(length_, &QSpinBox::valueChanged, this, &PolicyDialog::compute);
  connect(where_, &QLineEdit::textChanged, this, &PolicyDialog::compute);
  connect(files_, &QListWidget::currentRowChanged, this, &PolicyDialog::show_target);
  connect(replace_, &QCheckBox::toggled, this,
          [this] { show_result(targets_, remarks_->toPlainText()); });
  connect(write_, &QPushButton::clicked, this, &PolicyDialog::write);
  connect(buttons, &QDialogButtonBox::rejected, this, &QDialog::close);
}

void PolicyDialog::fail_with(const QString& message) {
  settled_ = true;
  targets_.clear();
  files_->clear();
  preview_->clear();
  remarks_->clear();
  write_->setEnabled(false);
  problem_->setText(message);
}

void PolicyDialog::read_document() {
  settled_ = false;
  ++asked_;
  document_.reset();
  write_->setEnabled(false);
  const int index = source_->currentData().toInt();
  if (source_->count() == 0)
    return fail_with(tr("Nothing is open that a policy could be made of."));
  if (index == kFrontPoint) return take_document(*session_.choices().front.document);
  if (index >= 0)
    return take_document(session_.documents().at(static_cast<std::size_t>(index)).document);
  if (!session_.evidence().is_read()) return;  // this function is called again when it is
  session_.profile()->read(
      this,
      [positions = session_.profile()->positions(session_.choices().task),
       choices = session_.choices(), models = session_.evidence().models(),
       documents = session_.contents()](const profile::Reader& reader) {
        return choices_document(reader, positions, choices, models, documents,
                                possible_sections(reader, documents));
      },
      [this](const calibrate::Document& document) {
        if (source_->currentData().toInt() == kChoices) take_document(document);
      },
      [this, number = asked_](const std::string& failure) {
        if (number == asked_) fail_with(QString::fromStdString(failure));
      });
}

void PolicyDialog::take_document(const calibrate::Document& document) {
  document_ = document;
  {
    const QSignalBlocker quiet(section_);
    const QString wanted =
        section_->count() > 0 ? section_->currentData().toString() : first_section_;
    section_->clear();
    section_->addItem(tr("every policy that the runtime takes"), QString());
    for (const auto& item : document.sections.items())
      section_->addItem(QString::fromStdString(item.key()), QString::fromStdString(item.key()));
    section_->setCurrentIndex(std::max(0, section_->findData(wanted)));
  }
  compute();
}

void PolicyDialog::compute() {
  if (!document_) return;
  settled_ = false;
  const int number = ++asked_;
  write_->setEnabled(false);
  const fs::path where = where_->text().trimmed().toStdString();
  if (where.empty()) return fail_with(tr("Say where to write."));
  exporting::ExportRequest request;
  request.runtime = runtime_->currentData().toString().toStdString();
  request.section = section_->currentData().toString().toStdString();
  request.task = task_->currentData().toString().toStdString();
  request.length = length_->value();
  computing_.request([this, where, request, purpose = purpose_, document = *document_,
                      number]() -> std::function<void()> {
    std::vector<Target> targets;
    QString remarks;
    if (purpose == Purpose::save) {
      targets.push_back({where, calibrate::document_text(document), content_of(where)});
    } else {
      const auto result = exporting::export_document(document, request);
      const bool several = result.policies.size() > 1;
      for (const auto& policy : result.policies) {
        for (const auto& file : policy.files) {
          const auto path = where / (several ? policy.section : "") / file.path;
          targets.push_back({path, file.content, content_of(path)});
        }
        if (!policy.note.empty())
          remarks += QString::fromStdString(str(policy.section, ": ", policy.note, "\n"));
      }
      for (const auto& reason : result.refused)
        remarks += QStringLiteral("Left out: ") + QString::fromStdString(reason) + "\n";
      remarks += QString::fromStdString(fit_text(calibrate::runtime_named(request.runtime)));
    }
    return [this, targets = std::move(targets), remarks, number] {
      if (number != asked_) return;
      files_->setCurrentRow(-1);
      show_result(targets, remarks);
    };
  });
}

void PolicyDialog::show_result(std::vector<Target> targets, const QString& remarks) {
  settled_ = true;
  targets_ = std::move(targets);
  problem_->clear();
  remarks_->setPlainText(remarks);
  const int row = std::max(files_->currentRow(), 0);
  const fs::path folder = where_->text().trimmed().toStdString();
  int differing = 0;
  {
    const QSignalBlocker quiet(files_);
    files_->clear();
    for (const auto& target : targets_) {
      const auto name = QString::fromStdString(
          purpose_ == Purpose::save ? target.path.filename().string()
                                    : target.path.lexically_relative(folder).string());
      const bool differs = target.there && *target.there != target.content;
      differing += differs ? 1 : 0;
      files_->addItem(QStringLiteral("%1  (%2)")
                          .arg(name, !target.there ? tr("new")
                                     : differs     ? tr("differs")
                                                   : tr("as it is")));
    }
  }
  files_->setCurrentRow(std::min(row, files_->count() - 1));
  show_target(files_->currentRow());
  replace_->setVisible(differing > 0);
  write_->setEnabled(!targets_.empty() && (differing == 0 || replace_->isChecked()));
  if (differing > 0 && !replace_->isChecked())
    problem_->setText(tr("Files there that would be replaced: %1. Tick the box above to allow it.")
                          .arg(differing));
}

void PolicyDialog::show_target(int row) {
  if (row < 0 || row >= static_cast<int>(targets_.size())) return preview_->clear();
  const auto& target = targets_[row];
  const auto diff = target.there ? line_diff(*target.there, target.content) : "";
  preview_->setPlainText(QString::fromStdString(diff.empty() ? target.content : diff));
}

void PolicyDialog::write() {
  write_->setEnabled(false);
  writing_.request([this, targets = targets_, where = where_->text(),
                    force = replace_->isChecked()]() -> std::function<void()> {
    for (const auto& target : targets) {
      // What appeared since the preview is not replaced.
      const bool same = content_of(target.path) == target.there;
      if (target.path.has_parent_path()) fs::create_directories(target.path.parent_path());
      if (same && target.there == target.content) continue;
      write_whole(target.content, target.path, force && same);
    }
    return [this, where] {
      emit written(where);
      close();
    };
  });
}

}  // namespace kvatlas::viewer
