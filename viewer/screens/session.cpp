// SPDX-License-Identifier: Apache-2.0
#include "viewer/screens/session.hpp"

#include <QFileInfo>
#include <QGuiApplication>
#include <QStringList>
#include <QUndoCommand>
#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "base/error.hpp"
#include "base/str.hpp"
#include "calibrate/rules/policy_reports.hpp"
#include "viewer/methods/choices_document.hpp"

namespace kvatlas::viewer {

namespace {

std::string fingerprint_of(const profile::Reader& profile) {
  try {
    return calibrate::profile_fingerprint(profile);
  } catch (const Error&) {
    return {};  // the screens that read its tokens say why
  }
}

/// A part of a prompt as the same share of one of another length.
void scale_tokens(Selection& selection, std::int64_t from, std::int64_t to) {
  if (!selection.tokens || from < 1 || from == to) return;
  const auto scaled = [&](std::int64_t token) {
    return std::llround(static_cast<double>(token) * static_cast<double>(to) /
                        static_cast<double>(from));
  };
  const std::int64_t first = scaled(selection.tokens->first);
  selection.tokens = {first, std::max<std::int64_t>(first + 1, scaled(selection.tokens->second))};
}

}  // namespace

OpenedProfile::OpenedProfile(std::filesystem::path path,
                             std::shared_ptr<const profile::Reader> reader,
                             std::unique_ptr<TileSource> tiles)
    : path_(std::move(path)), reader_(std::move(reader)), fingerprint_(fingerprint_of(*reader_)) {
  const auto deliver = [this](TileResult result) {
    {
      const std::lock_guard lock(coming_mutex_);
      coming_.insert(result.key);
    }
    mailbox_.post([this, result = std::move(result)] {
      {
        const std::lock_guard lock(coming_mutex_);
        coming_.erase(result.key);
      }
      if (result.tile) cache_.insert(result.key, result.tile);
      emit tile_arrived(result.key, QString::fromStdString(result.failure));
    });
  };
  loader_ =
      std::make_unique<TileLoader>(tiles ? std::move(tiles) : profile_tiles(reader_), deliver);
}

OpenedProfile::~OpenedProfile() { loader_.reset(); }

std::string name_of(const OpenedProfile* profile) {
  return profile ? profile->path().filename().string() : std::string();
}

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
  std::shared_ptr<const OpenedKeptTokens> kept;  // the last one
  std::vector<std::string> failures;
  std::vector<std::filesystem::path> unfinished;
};

Session::Session(QObject* parent)
    : QObject(parent), theme_(make_theme(false, QGuiApplication::font())) {}

Session::~Session() = default;

void Session::open(const std::vector<std::filesystem::path>& paths, bool as_baseline) {
  if (!paths.empty()) read(paths, as_baseline ? As::baseline : As::profile);
}

void Session::reload(bool the_baseline) {
  if (const auto* opened_profile = the_baseline ? baseline() : profile())
    read({opened_profile->path()}, the_baseline ? As::baseline : As::same_profile);
}

void Session::cancel_openings() { ++generation_; }

void Session::read(const std::vector<std::filesystem::path>& paths, As as) {
  QStringList names;
  for (const auto& path : paths) names << QString::fromStdString(path.filename().string());
  emit opening(names.join(", "));
  openings_.start(
      [this, paths, as, generation = generation_, names = names.join(", "), home = thread()] {
        const auto opened_files = std::make_shared<Opened>();
        for (const auto& path : paths) {
          try {
            if (profile::is_profile(path)) {
              std::error_code problem;
              if (!std::filesystem::exists(path, problem)) opened_files->unfinished.push_back(path);
              opened_files->profile =
                  std::make_unique<OpenedProfile>(path, std::make_shared<profile::Reader>(path));
              opened_files->profile->moveToThread(home);
            } else if (holds_kept_tokens(path)) {
              opened_files->kept = std::make_shared<const OpenedKeptTokens>(
                  OpenedKeptTokens{path, read_kept_tokens(path)});
            } else {
              opened_files->documents.push_back({path, calibrate::read_document(path)});
            }
          } catch (const std::exception& error) {
            opened_files->failures.emplace_back(error.what());
          }
        }
        mailbox_.post([this, opened_files, as, generation, names] {
          if (generation == generation_) take(opened_files, as);
          emit opened(names);
        });
      });
}

Selection Session::same_selection(const OpenedProfile& next) const {
  Selection selection = selection_.current();
  const auto& before = profile_->samples();
  const auto index = selection.sample < before.size() ? before[selection.sample].index : -1;
  selection.sample = 0;
  for (std::size_t i = 0; i < next.samples().size(); ++i)
    if (next.samples()[i].index == index) selection.sample = i;
  return selection;
}

void Session::take(const std::shared_ptr<Opened>& opened_files, As as) {
  auto& next = opened_files->profile;
  // Another model, or none before: nothing of what is chosen can be kept.
  if (next && as == As::same_profile &&
      (!profile_ || profile_->header().n_layers != next->header().n_layers ||
       profile_->header().n_heads != next->header().n_heads ||
       profile_->header().axes.size() != next->header().axes.size()))
    as = As::profile;
  const bool is_new = next && as == As::profile, is_same = next && as == As::same_profile;
  const bool is_baseline = next && as == As::baseline;
  const Selection selection = is_same ? same_selection(*next) : Selection{};
  // What was open goes at the end, when nobody looks at it any more.
  const std::unique_ptr<OpenedProfile> before =
      !next ? nullptr : std::exchange(as == As::baseline ? baseline_ : profile_, std::move(next));
  set_tile_bytes(tile_bytes_);
  for (auto& document : opened_files->documents) {
    const auto same = [&](const OpenedDocument& there) { return there.path == document.path; };
    // Opened again: as it is now.
    if (std::erase_if(documents_, same) == 0 && !document.document.pareto.empty())
      emit front_opened();
    documents_.push_back(std::move(document));
  }
  if (is_new || (!is_same && !opened_files->documents.empty())) {
    if (profile_ && leader_)
      choices_ = leader_->choices_;
    else if (profile_)
      choices_ = initial_choices(profile_->header(), profile_->samples(), contents());
    undo_.clear();
  }
  if (is_new && leader_) take_documents_of_leader();
  if (is_new || is_same) {
    selection_.reset(leader_ ? selection_of_leader() : selection, bounds());
    emit profile_changed();
  }
  if (is_baseline) emit baseline_changed();
  // Which documents are the profile's own depends on the baseline.
  if (!opened_files->documents.empty() || (is_baseline && !documents_.empty()))
    emit documents_changed();
  if (opened_files->kept) {
    kept_ = opened_files->kept;
    emit kept_changed();
  }
  if (is_new || !opened_files->documents.empty()) emit choices_changed();
  for (const auto& failure : opened_files->failures) emit failed(QString::fromStdString(failure));
  for (const auto& path : opened_files->unfinished)
    emit unfinished(QString::fromStdString(path.string()));
}

void Session::close_baseline() {
  const auto before = std::move(baseline_);  // goes when nobody looks at it any more
  emit baseline_changed();
  if (!documents_.empty()) emit documents_changed();
}

void Session::close_document(std::size_t index) {
  if (index >= documents_.size()) return;
  documents_.erase(documents_.begin() + static_cast<std::ptrdiff_t>(index));
  emit documents_changed();
}

void Session::set_tile_bytes(std::int64_t bytes) {
  tile_bytes_ = bytes;
  for (auto* opened_profile : {profile(), baseline()})
    if (opened_profile) opened_profile->cache().set_most_bytes(bytes);
}

std::vector<calibrate::Document> Session::contents() const {
  std::vector<calibrate::Document> contents;
  for (const auto& opened : documents_) contents.push_back(opened.document);
  return contents;
}

bool Session::is_own(const OpenedDocument& opened_document) const {
  const std::string& from = opened_document.document.provenance.profile;
  const bool of_baseline = baseline_ && !from.empty() && from == baseline_->fingerprint();
  return !of_baseline || (profile_ && from == profile_->fingerprint());
}

std::vector<calibrate::Document> Session::own_contents() const {
  std::vector<calibrate::Document> contents;
  for (const auto& opened_document : documents_)
    if (is_own(opened_document)) contents.push_back(opened_document.document);
  return contents;
}

const nlohmann::json& Session::section(const std::string& name) const {
  static const nlohmann::json null;
  for (const auto& opened_document : documents_) {
    if (!is_own(opened_document)) continue;
    const auto found = opened_document.document.sections.find(name);
    if (found != opened_document.document.sections.end()) return *found;
  }
  return null;
}

const nlohmann::json& Session::section_of(const calibrate::Method& method) const {
  const auto& found = section(method.name);
  if (found.is_null() && profile()) calibrate::require_fit(method, profile()->header());
  return found;
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
  if (leader_) return leader_->change(name, choices, going_on);
  undo_.push(new ChangeChoices(*this, name, choices, going_on));
}

void Session::choose_task(const std::string& task) {
  if (task == choices_.task) return;
  Choices choices = choices_;
  choices.task = task;
  change(tr("sample set"), choices);
}

void Session::set_choices(const Choices& choices) {
  choices_ = choices;
  emit choices_changed();
}

void Session::follow(Session& leader) {
  leader_ = &leader;
  choices_ = leader.choices_;
  theme_ = leader.theme_;
  connect(&leader, &Session::documents_changed, this, [this] {
    take_documents_of_leader();
    emit documents_changed();
  });
  connect(&leader, &Session::choices_changed, this, [this] { set_choices(leader_->choices_); });
  connect(&leader, &Session::theme_changed, this, [this] { set_theme(leader_->theme_); });
  connect(&leader, &Session::baseline_changed, this, &Session::take_baseline_of_leader);
  connect(&leader.selection_, &SelectionModel::changed, this, [this] {
    if (profile_) selection_.set(selection_of_leader());
  });
  connect(&selection_, &SelectionModel::changed, this, [this] {
    Selection chosen = selection_.current();
    if (!profile_ || chosen == selection_of_leader() || leader_->tokens_of(chosen.sample) == 0)
      return;
    scale_tokens(chosen, tokens_of(chosen.sample), leader_->tokens_of(chosen.sample));
    leader_->selection_.set(chosen);
  });
  connect(this, &Session::failed, &leader, &Session::failed);
  connect(this, &Session::message, &leader, &Session::message);
  take_baseline_of_leader();
}

void Session::take_baseline_of_leader() {
  if (const auto* baseline = leader_->baseline())
    read({baseline->path()}, As::profile);
  else if (const auto before = std::move(profile_))
    emit profile_changed();
}

void Session::take_documents_of_leader() {
  documents_.clear();
  if (!profile_ || profile_->fingerprint().empty()) return;
  for (const auto& opened_document : leader_->documents_)
    if (opened_document.document.provenance.profile == profile_->fingerprint())
      documents_.push_back(opened_document);
}

std::int64_t Session::tokens_of(std::size_t sample) const {
  return profile_ && sample < profile_->samples().size() ? profile_->samples()[sample].n_tokens : 0;
}

SelectionBounds Session::bounds() const {
  SelectionBounds bounds{profile_->header().n_layers, profile_->header().n_heads, {}};
  for (const auto& sample : profile_->samples()) bounds.tokens.push_back(sample.n_tokens);
  return bounds;
}

Selection Session::selection_of_leader() const {
  Selection selection = leader_->selection_.current();
  const std::int64_t tokens = leader_->tokens_of(selection.sample);
  selection.sample =
      std::min(selection.sample, std::max<std::size_t>(profile_->samples().size(), 1) - 1);
  scale_tokens(selection, tokens, tokens_of(selection.sample));
  return bounded(selection, bounds());
}

void Session::set_theme(const Theme& theme) {
  theme_ = theme;
  emit theme_changed();
}

}  // namespace kvatlas::viewer
