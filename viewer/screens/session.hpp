// SPDX-License-Identifier: Apache-2.0
// What is open and what is chosen: the state that all screens share. It has no widgets.
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
#include "viewer/models/kept_tokens.hpp"
#include "viewer/screens/evidence_cache.hpp"
#include "viewer/screens/map_cursor.hpp"
#include "viewer/screens/selection.hpp"
#include "viewer/threads/errands.hpp"
#include "viewer/threads/mailbox.hpp"

namespace kvatlas::viewer {

/// An opened profile. Its header and list of samples are there at once. Everything else is read by
/// read() in the thread of its loader.
class OpenedProfile : public QObject {
  Q_OBJECT

 public:
  /// `tiles` is where maps come from; nullptr means from the file.
  OpenedProfile(std::filesystem::path path, std::shared_ptr<const profile::Reader> reader,
                std::unique_ptr<TileSource> tiles = nullptr);
  ~OpenedProfile() override;

  const std::filesystem::path& path() const { return path_; }
  const profile::Header& header() const { return reader_->header(); }
  const std::vector<profile::Sample>& samples() const { return reader_->samples(); }
  bool complete() const { return reader_->complete(); }
  /// What documents made from it name; empty if its tokens cannot be read.
  const std::string& fingerprint() const { return fingerprint_; }
  /// Positions of the samples of a task; an empty text means all samples.
  std::vector<std::size_t> positions(const std::string& task) const;

  /// Runs `work` in the reading thread, and then in this thread `done` with what it returned, or
  /// `failed` with the message of its error. Neither is called any more once `receiver` is gone.
  template <class Work, class Done>
  void read(QObject* receiver, Work work, Done done, std::function<void(std::string)> failed);

  TileLoader& loader() { return *loader_; }
  TileCache& cache() { return cache_; }
  /// Whether a tile is in the cache, or has been read and is about to be stored there.
  bool has_tile(const TileKey& key) const;

 signals:
  /// A tile was stored in the cache, or could not be read; then `failure` says why.
  void tile_arrived(const kvatlas::viewer::TileKey& key, const QString& failure);

 private:
  std::filesystem::path path_;
  std::shared_ptr<const profile::Reader> reader_;
  std::string fingerprint_;
  TileCache cache_;
  mutable std::mutex coming_mutex_;
  std::unordered_set<TileKey, TileKeyHash> coming_;
  Mailbox mailbox_{this};
  /// Declared last, for its thread uses the other members.
  std::unique_ptr<TileLoader> loader_;
};

/// Name of the profile's file; empty if there is no profile.
std::string name_of(const OpenedProfile* profile);

struct OpenedDocument {
  std::filesystem::path path;
  calibrate::Document document;
};

struct OpenedKeptTokens {
  std::filesystem::path path;
  KeptTokens tokens;
};

class Session : public QObject {
  Q_OBJECT

 public:
  explicit Session(QObject* parent = nullptr);
  ~Session() override;

  /// Opens profiles, documents and files of kept tokens in another thread; their content tells them
  /// apart. The last profile becomes the session's profile, or its baseline if `as_baseline` is
  /// set; the last file of kept tokens takes the place of the one before. A file that
  /// cannot be opened ends in failed() and leaves what is open as it is.
  void open(const std::vector<std::filesystem::path>& paths, bool as_baseline = false);
  /// Reads the profile or the baseline again from its file. What is chosen stays, as far as the
  /// file still has it.
  void reload(bool the_baseline = false);
  /// Files that are being opened are dropped as soon as they are read.
  void cancel_openings();
  void close_baseline();
  void close_document(std::size_t index);

  OpenedProfile* profile() const { return profile_.get(); }    // nullptr if none is open
  OpenedProfile* baseline() const { return baseline_.get(); }  // likewise
  const std::vector<OpenedDocument>& documents() const { return documents_; }
  /// What policies keep of prompts; nullptr if no such file is open.
  const std::shared_ptr<const OpenedKeptTokens>& kept() const { return kept_; }
  /// Whether there is anything to show.
  bool is_open() const { return profile_ || !documents_.empty() || kept_; }
  /// Contents of the documents, without their paths.
  std::vector<calibrate::Document> contents() const;
  /// Those of them that were not made from the baseline: what they measured is not the profile's.
  std::vector<calibrate::Document> own_contents() const;
  /// The section of this name, such as "simlayerkv", in the first of these that has it, or null.
  const nlohmann::json& section(const std::string& name) const;
  /// The method's section. Where no document has one, refuses a method that the open profile's
  /// model cannot follow.
  const nlohmann::json& section_of(const calibrate::Method& method) const;

  /// Sets how many bytes of tiles are kept of each opened profile.
  void set_tile_bytes(std::int64_t bytes);
  std::int64_t tile_bytes() const { return tile_bytes_; }

  /// What the profile says about the methods at the present choices.
  EvidenceCache& evidence() { return evidence_; }

  SelectionModel& selection() { return selection_; }
  MapCursor& map_cursor() { return map_cursor_; }
  const Choices& choices() const { return choices_; }
  /// Changes the choices as one step of undo with this name. If `going_on` is set the change is
  /// joined with the step before, as the moves of one drag are.
  void change(const QString& name, const Choices& choices, bool going_on = false);
  /// Has all numbers made from the samples of this task alone (an empty name stands for all tasks).
  void choose_task(const std::string& task);
  QUndoStack& undo() { return undo_; }

  /// From now on this session's profile is the leader's baseline. Settings, place and look are
  /// those of the leader, and what is changed here is changed there. Its documents are those of the
  /// leader that were made from the baseline. The leader must outlive this session.
  void follow(Session& leader);

  const Theme& theme() const { return theme_; }
  void set_theme(const Theme& theme);

 signals:
  void profile_changed();
  void baseline_changed();
  void documents_changed();
  void kept_changed();
  /// A document with the front of a search was opened; comes before the other signals.
  void front_opened();
  void choices_changed();
  void theme_changed();
  void opening(const QString& names);  // an opening has begun …
  void opened(const QString& names);   // … and ended, well or not
  void failed(const QString& message);
  /// The file to be opened does not exist yet: there are only the samples of a run that still goes
  /// on. failed() is emitted too.
  void unfinished(const QString& path);
  void message(const QString& text);  // a text for the status bar

 private:
  friend class ChangeChoices;
  struct Opened;
  enum class As : std::uint8_t { profile, baseline, same_profile };
  void read(const std::vector<std::filesystem::path>& paths, As as);
  void take(const std::shared_ptr<Opened>& opened, As as);
  Selection same_selection(const OpenedProfile& next) const;
  void set_choices(const Choices& choices);
  void take_baseline_of_leader();
  void take_documents_of_leader();
  bool is_own(const OpenedDocument& document) const;
  /// Tokens of a sample of the profile; 0 if there is no such sample.
  std::int64_t tokens_of(std::size_t sample) const;
  SelectionBounds bounds() const;  // what the profile has to choose from
  /// The leader's selection, as far as the profile here has it.
  Selection selection_of_leader() const;

  std::unique_ptr<OpenedProfile> profile_, baseline_;
  std::vector<OpenedDocument> documents_;
  std::shared_ptr<const OpenedKeptTokens> kept_;
  SelectionModel selection_;
  MapCursor map_cursor_;
  Choices choices_;
  QUndoStack undo_;
  Theme theme_;
  Session* leader_ = nullptr;
  EvidenceCache evidence_{*this};
  std::int64_t tile_bytes_ = TileCache::kDefaultBytes;
  /// Of openings; those with an older generation were cancelled.
  std::uint64_t generation_ = 0;
  Mailbox mailbox_;
  Errands openings_;  // declared last, for its thread uses the other members
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
