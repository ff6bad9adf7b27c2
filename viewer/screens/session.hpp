// SPDX-License-Identifier: Apache-2.0
// What is open and what is chosen: the state that all screens share. No widgets.
#pragma once

#include <QObject>
#include <QPointer>
#include <QUndoStack>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "calibrate/policy/policy.hpp"
#include "viewer/draw/theme.hpp"
#include "viewer/maps/tile_cache.hpp"
#include "viewer/maps/tile_loader.hpp"
#include "viewer/models/choices.hpp"
#include "viewer/screens/evidence_cache.hpp"
#include "viewer/screens/map_cursor.hpp"
#include "viewer/screens/selection.hpp"
#include "viewer/threads/errands.hpp"
#include "viewer/threads/mailbox.hpp"

namespace kvatlas::viewer {

/// An opened profile. Its header and list of samples are here at once; everything else is read in
/// its loader's thread, by read().
class OpenedProfile : public QObject {
  Q_OBJECT

 public:
  /// Maps come from `tiles`; none: from the file.
  OpenedProfile(std::filesystem::path path, std::shared_ptr<const profile::Reader> reader,
                std::unique_ptr<TileSource> tiles = nullptr);
  ~OpenedProfile() override;

  const std::filesystem::path& path() const { return path_; }
  const profile::Header& header() const { return reader_->header(); }
  const std::vector<profile::Sample>& samples() const { return reader_->samples(); }
  bool complete() const { return reader_->complete(); }
  /// Positions of the samples of a task (empty: all).
  std::vector<std::size_t> positions(const std::string& task) const;

  /// Runs `work` in the reading thread, then `done` here with what it returned, or `failed` with
  /// the error's message. Neither is called once `receiver` is gone.
  template <class Work, class Done>
  void read(QObject* receiver, Work work, Done done, std::function<void(std::string)> failed);

  TileLoader& loader() { return *loader_; }
  TileCache& cache() { return cache_; }
  /// Whether a tile is in the cache, or was read and is on its way there.
  bool has_tile(const TileKey& key) const;

 signals:
  /// A tile has come into the cache, or `failure` says why it cannot.
  void tile_arrived(const kvatlas::viewer::TileKey& key, const QString& failure);

 private:
  std::filesystem::path path_;
  std::shared_ptr<const profile::Reader> reader_;
  TileCache cache_;
  mutable std::mutex coming_mutex_;
  std::unordered_set<TileKey, TileKeyHash> coming_;
  Mailbox mailbox_{this};
  std::unique_ptr<TileLoader> loader_;  // last: its thread uses the others
};

/// Of its file; empty for none.
std::string name_of(const OpenedProfile* profile);

struct OpenedDocument {
  std::filesystem::path path;
  calibrate::Document document;
};

class Session : public QObject {
  Q_OBJECT

 public:
  explicit Session(QObject* parent = nullptr);
  ~Session() override;

  /// Opens profiles and documents, told apart by their content, in a thread; what cannot be opened
  /// ends in failed() and leaves what is open as it is. The first profile becomes the profile
  /// unless `as_baseline`.
  void open(const std::vector<std::filesystem::path>& paths, bool as_baseline = false);
  /// Reads the profile or the baseline anew from its file; what is chosen stays, as far as the file
  /// still has it.
  void reload(bool the_baseline = false);
  /// What is being opened is dropped once it is read.
  void cancel_openings();
  void close_baseline();
  void close_document(std::size_t index);

  OpenedProfile* profile() const { return profile_.get(); }    // nullptr: none is open
  OpenedProfile* baseline() const { return baseline_.get(); }  // likewise
  const std::vector<OpenedDocument>& documents() const { return documents_; }
  std::vector<calibrate::Document> contents() const;  // of the documents, without their paths
  /// The section of that name ("simlayerkv") of the first document that has it; null otherwise.
  const nlohmann::json& section(const std::string& name) const;

  /// Bytes of tiles kept of each opened profile.
  void set_tile_bytes(std::int64_t bytes);
  std::int64_t tile_bytes() const { return tile_bytes_; }

  /// What the profile says of the methods at the present choices.
  EvidenceCache& evidence() { return evidence_; }

  SelectionModel& selection() { return selection_; }
  MapCursor& map_cursor() { return map_cursor_; }
  const Choices& choices() const { return choices_; }
  /// One step of undo, with this name; steps that follow within one drag (`going_on`) become one.
  void change(const QString& name, const Choices& choices, bool going_on = false);
  /// Has all numbers made from the samples of this task alone (empty: of all tasks).
  void choose_task(const std::string& task);
  QUndoStack& undo() { return undo_; }

  /// From now on the leader's baseline is the profile here; documents, settings, place and look are
  /// the leader's, and what is changed here is changed there. The leader outlives this.
  void follow(Session& leader);

  const Theme& theme() const { return theme_; }
  void set_theme(const Theme& theme);

 signals:
  void profile_changed();
  void baseline_changed();
  void documents_changed();
  void front_opened();  // one of the documents to come has the front of a search; before the others
  void choices_changed();
  void theme_changed();
  void opening(const QString& names);  // an opening has begun …
  void opened(const QString& names);   // … and ended, well or not
  void failed(const QString& message);
  /// What was to be opened is no file yet, only the samples of a run that goes on (besides
  /// failed()).
  void unfinished(const QString& path);
  void message(const QString& text);  // for the status bar

 private:
  friend class ChangeChoices;
  struct Opened;
  enum class As : std::uint8_t { profile, baseline, same_profile };
  void read(const std::vector<std::filesystem::path>& paths, As as);
  void take(const std::shared_ptr<Opened>& opened, As as);
  Selection same_selection(const OpenedProfile& next) const;
  void set_choices(const Choices& choices);
  void take_baseline_of_leader();
  std::int64_t tokens_of(std::size_t sample) const;  // of the profile; 0 without such a sample
  SelectionBounds bounds() const;                    // of the profile
  /// The leader's place, as far as the profile has it.
  Selection selection_of_leader() const;

  std::unique_ptr<OpenedProfile> profile_, baseline_;
  std::vector<OpenedDocument> documents_;
  SelectionModel selection_;
  MapCursor map_cursor_;
  Choices choices_;
  QUndoStack undo_;
  Theme theme_;
  Session* leader_ = nullptr;
  EvidenceCache evidence_{*this};
  std::int64_t tile_bytes_ = TileCache::kDefaultBytes;
  std::uint64_t generation_ = 0;  // of openings: those before were cancelled
  Mailbox mailbox_;
  Errands openings_;  // last: its thread uses the others
};

template <class Work, class Done>
void OpenedProfile::read(QObject* receiver, Work work, Done done,
                         std::function<void(std::string)> failed) {
  const QPointer<QObject> alive(receiver);
  loader_->post([this, alive, work = std::move(work), done = std::move(done),
                 failed = std::move(failed)]() mutable {
    std::function<void()> result;
    try {
      auto value = std::make_shared<decltype(work(*reader_))>(work(*reader_));
      result = [value, done = std::move(done)] { done(std::move(*value)); };
    } catch (const std::exception& error) {
      result = [text = std::string(error.what()), failed = std::move(failed)] { failed(text); };
    }
    mailbox_.post([alive, result = std::move(result)] {
      if (alive) result();
    });
  });
}

}  // namespace kvatlas::viewer
