// SPDX-License-Identifier: Apache-2.0
#include "viewer/window/session.hpp"

#include <QFileInfo>
#include <QGuiApplication>
#include <QUndoCommand>
#include <exception>
#include <utility>

#include "kernels/base/error.hpp"
#include "kernels/base/str.hpp"

namespace kvatlas::viewer {

OpenedProfile::OpenedProfile(std::filesystem::path path,
                             std::shared_ptr<const profile::Reader> reader,
                             std::unique_ptr<TileSource> tiles)
    : path_(std::move(path)), reader_(std::move(reader)) {
  const auto deliver = [this](TileResult result) {
    {
      const std::lock_guard lock(coming_mutex_);
      coming_.insert(result.key);
    }
    QMetaObject::invokeMethod(
        this,
        [this, result = std::move(result)] {
          {
            const std::lock_guard lock(coming_mutex_);
            coming_.erase(result.key);
          }
          if (result.tile) cache_.insert(result.key, result.tile);
          emit tile_arrived(result.key, QString::fromStdString(result.failure));
        },
        Qt::QueuedConnection);
  };
  loader_ =
      std::make_unique<TileLoader>(tiles ? std::move(tiles) : profile_tiles(reader_), deliver);
}

OpenedProfile::~OpenedProfile() { loader_.reset(); }

bool OpenedProfile::has_tile(const TileKey& key) const {
  if (cache_.contains(key)) return true;
  const std::lock_guard lock(coming_mutex_);
  return coming_.contains(key);
}

std::vector<std::size_t> OpenedProfile::positions(const std::string& task) const {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < samples().size(); ++i)
    if (task.empty() || samples()[i].task == task) out.push_back(i);
  return out;
}

/// What became of the files that were to be opened.
struct Session::Opened {
  std::unique_ptr<OpenedProfile> profile;  // the last one
  std::vector<OpenedDocument> documents;
  std::vector<std::string> failures;
};

Session::Session(QObject* parent)
    : QObject(parent), theme_(make_theme(false, QGuiApplication::font())) {}

Session::~Session() = default;

void Session::open(const std::vector<std::filesystem::path>& paths, bool as_baseline) {
  for (const auto& path : paths) emit opening(QString::fromStdString(path.filename().string()));
  openings_.start([this, paths, as_baseline, home = thread()] {
    const auto opened_files = std::make_shared<Opened>();
    for (const auto& path : paths) {
      try {
        if (profile::is_profile(path)) {
          opened_files->profile =
              std::make_unique<OpenedProfile>(path, std::make_shared<profile::Reader>(path));
          opened_files->profile->moveToThread(home);
        } else {
          opened_files->documents.push_back({path, calibrate::read_document(path)});
        }
      } catch (const std::exception& error) {
        opened_files->failures.emplace_back(error.what());
      }
    }
    QMetaObject::invokeMethod(
        this, [this, opened_files, as_baseline] { take(opened_files, as_baseline); },
        Qt::QueuedConnection);
  });
}

void Session::take(const std::shared_ptr<Opened>& opened_files, bool as_baseline) {
  const bool is_new_profile = opened_files->profile && !as_baseline;
  if (is_new_profile) {
    profile_ = std::move(opened_files->profile);
  } else if (opened_files->profile) {
    baseline_ = std::move(opened_files->profile);
    emit baseline_changed();
  }
  for (auto& document : opened_files->documents) documents_.push_back(std::move(document));
  if (is_new_profile || !opened_files->documents.empty()) {
    std::vector<calibrate::Document> documents;
    for (const auto& document : documents_) documents.push_back(document.document);
    if (profile_) set_choices(initial_choices(profile_->header(), profile_->samples(), documents));
    undo_.clear();
  }
  if (is_new_profile) {
    selection_.reset({});
    emit profile_changed();
  }
  if (!opened_files->documents.empty()) emit documents_changed();
  for (const auto& failure : opened_files->failures) emit failed(QString::fromStdString(failure));
  emit opened({});
}

void Session::close_baseline() {
  baseline_.reset();
  emit baseline_changed();
}

void Session::close_document(std::size_t index) {
  if (index >= documents_.size()) return;
  documents_.erase(documents_.begin() + static_cast<std::ptrdiff_t>(index));
  emit documents_changed();
}

const nlohmann::json& Session::section(const std::string& name) const {
  static const nlohmann::json null;
  for (const auto& opened_document : documents_) {
    const auto found = opened_document.document.sections.find(name);
    if (found != opened_document.document.sections.end()) return *found;
  }
  return null;
}

/// One step of undo.
class ChangeChoices : public QUndoCommand {
 public:
  ChangeChoices(Session& session, const QString& name, Choices after, bool going_on)
      : QUndoCommand(name),
        session_(session),
        before_(session.choices()),
        after_(std::move(after)),
        going_on_(going_on) {}
  void redo() override { session_.set_choices(after_); }
  void undo() override { session_.set_choices(before_); }
  int id() const override { return 1; }
  bool mergeWith(const QUndoCommand* next) override {
    const auto& change = static_cast<const ChangeChoices&>(*next);
    if (!change.going_on_ || change.text() != text()) return false;
    after_ = change.after_;
    return true;
  }

 private:
  Session& session_;
  Choices before_, after_;
  bool going_on_;
};

void Session::change(const QString& name, const Choices& choices, bool going_on) {
  undo_.push(new ChangeChoices(*this, name, choices, going_on));
}

void Session::set_choices(const Choices& choices) {
  choices_ = choices;
  emit choices_changed();
}

void Session::set_theme(const Theme& theme) {
  theme_ = theme;
  emit theme_changed();
}

}  // namespace kvatlas::viewer
