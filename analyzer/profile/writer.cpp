// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <span>

#include "analyzer/profile/output_file_impl.hpp"
#include "analyzer/profile/profile_file_impl.hpp"
#include "analyzer/profile/workplace_impl.hpp"
#include "base/text_count.hpp"

namespace kvatlas::profile {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

/// Error(internal): the sample is not what the header describes.
void check_sample(const Header& header, const Sample& sample) {
  const auto place = [&] { return str("sample ", sample.index); };
  if (sample.index < 0 || sample.index >= header.planned_samples)
    fail(ErrorCode::internal, place(), " is not one of the ", header.planned_samples, " planned");
  for (const auto& [name, array] : sample.arrays) {
    const Description* described = find_description(header, name);
    if (!described)
      fail(ErrorCode::internal, place(), ": array ", quoted(name), " is not described");
    const bool fits = described->sizes.empty() ? array.shape.size() == described->axes.size()
                                               : array.shape == described->sizes;
    if (array.type != described->type || !fits ||
        static_cast<std::int64_t>(array.bytes.size()) != byte_count(array.type, array.shape))
      fail(ErrorCode::internal, place(), ": array ", quoted(name), " is ", type_name(array.type),
           " ", list_str(array.shape), " in ", array.bytes.size(), " bytes, described as ",
           type_name(described->type), " of axes ", list_str(described->axes), " and sizes ",
           list_str(described->sizes));
  }
  if (sample.has_zero_byte())
    fail(ErrorCode::usage, place(),
         ": its id, task or an answer, or another of its texts, holds a zero byte");
}

std::shared_ptr<const ProfileFile> open(const fs::path& path) {
  return in_context(shown(path), [&] { return std::make_shared<const ProfileFile>(path); });
}

/// What to do with a file that cannot be read: a damaged profile can be replaced, other files
/// cannot.
const char* how_replaced(const fs::path& path) {
  return begins_as_hdf5(path) ? "; --force replaces it"
                              : "; choose another name, for --force replaces profiles alone";
}

}  // namespace

struct Writer::State {
  State(Workplace place_taken, Header described)
      : place(std::move(place_taken)), header(std::move(described)) {}

  void refuse_what_is_there();
  void begin_anew();
  void resume();
  void adopt(const ProfileFile& file, bool& first);
  bool is_old() const { return place.begun_anew(); }  // p.h5 is of the run before
  const fs::path& path() const { return place.profile(); }

  void assemble();
  /// A profile to take samples from; `part`: which one, if it is one sample's.
  struct Gathered {
    fs::path path;
    std::optional<std::int64_t> part;
  };
  class OnTheWay;
  std::set<std::int64_t> gather(std::span<const Gathered> from, const fs::path& to);
  void assemble_if_cheap();

  mutable std::mutex mutex;
  Workplace place;
  Header header;
  bool joined = false, finished = false;
  std::set<std::int64_t> in_profile;
  std::vector<std::string> warnings;
  Clock::time_point last_assembled = Clock::now();
  Clock::duration assembling{};
};

/// Neither resume nor force: nothing may be there.
void Writer::State::refuse_what_is_there() {
  const bool old = is_old();
  std::set<std::int64_t> done = place.parts();
  std::int64_t planned = header.planned_samples;
  bool complete = false;
  if (!done.empty()) {
    try {
      planned = open(place.part(*done.begin()))->header().planned_samples;
    } catch (const Error&) {  // which resuming will tell
    }
  }
  if (is_there(path()) && !old) {
    std::shared_ptr<const ProfileFile> file;
    try {
      file = open(path());
    } catch (const Error& error) {
      fail(ErrorCode::usage, error.what(), how_replaced(path()));
    }
    for (const Sample& sample : file->samples()) done.insert(sample.index);
    planned = file->header().planned_samples;
    complete = file->complete();
  } else if (done.empty() && !is_there(path())) {
    return;
  }
  if (complete)
    fail(ErrorCode::usage, shown(path()), " is there already, complete with ",
         count_of(std::ssize(done), "sample", "samples"),
         ": --force replaces it, --resume leaves it as it is");
  fail(ErrorCode::usage, shown(path()), " is unfinished, ", done.size(), " of ",
       count_of(planned, "sample is", "samples are"),
       " done: --resume goes on with it, --force begins anew");
}

void Writer::State::begin_anew() {
  require_replaceable(path());
  if (is_there(path())) place.begin_anew();
  place.remove_parts();
}

/// Goes on as `file` began: backend and names are those of its header.
void Writer::State::adopt(const ProfileFile& file, bool& first) {
  const auto clauses = differences(file.header(), header, true);
  if (!clauses.empty())
    fail(ErrorCode::usage, shown(file.path()),
         " was begun with other settings: ", first_few(clauses));
  const Header ours = header;
  if (first) header = file.header();
  add_texts(ours, header);
  add_texts(file.header(), header);
  first = false;
}

void Writer::State::resume() {
  bool first = true;
  if (is_there(path()) && !is_old()) {
    std::shared_ptr<const ProfileFile> file;
    try {
      file = open(path());
    } catch (Error& error) {
      fail(error.code(), error.what(), "; it cannot be resumed", how_replaced(path()));
    }
    adopt(*file, first);
    for (const Sample& sample : file->samples()) in_profile.insert(sample.index);
  }
  for (const auto index : place.parts()) {
    try {
      const auto part = open(place.part(index));
      adopt(*part, first);
      in_context(shown(part->path()), [&] {
        part->require_intact();
        if (part->samples().size() != 1 || part->samples()[0].index != index)
          fail(ErrorCode::unreadable, "does not hold sample ", index, " alone");
      });
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unreadable) throw;
      place.remove_part(index);
      warnings.push_back(str("sample ", index, " is computed again: ", error.what()));
    }
  }
}

Writer::Writer(const fs::path& path, const Header& header, const WriterOptions& options) {
  const Hdf5Session session;
  check_header(header);
  state_ = std::make_unique<State>(Workplace::lock(path), header);
  State& state = *state_;
  if (options.force)
    state.begin_anew();
  else if (options.resume)
    state.resume();
  else
    state.refuse_what_is_there();
  state.place.remove_half_written();
}

Writer::Writer(std::unique_ptr<State> state) : state_(std::move(state)) {}

Writer::~Writer() {
  if (!state_ || state_->finished || state_->joined) return;
  try {
    const std::set<std::int64_t> parts = state_->place.parts();
    if (!parts.empty()) {
      finish();
    } else {
      const Hdf5Session session;
      state_->place.end_anew();
    }
  } catch (...) {  // the parts stay, and --resume finds them
  }
}

std::unique_ptr<Writer> Writer::join(const fs::path& path, const Header& header) {
  const Hdf5Session session;
  check_header(header);
  auto state = std::make_unique<State>(Workplace::join(path), header);
  state->joined = true;
  if (is_there(path) && !state->is_old())
    for (const Sample& sample : open(path)->samples()) state->in_profile.insert(sample.index);
  return std::unique_ptr<Writer>(new Writer(std::move(state)));
}

std::set<std::int64_t> Writer::finished() const {
  const std::lock_guard lock(state_->mutex);
  std::set<std::int64_t> done = state_->place.parts();
  done.insert(state_->in_profile.begin(), state_->in_profile.end());
  return done;
}

std::vector<std::string> Writer::warnings() const {
  const std::lock_guard lock(state_->mutex);
  return state_->warnings;
}

void Writer::add(const Sample& sample) {
  State& state = *state_;
  check_sample(state.header, sample);
  {
    const std::lock_guard lock(state.mutex);
    if (state.in_profile.contains(sample.index) || is_there(state.place.part(sample.index))) return;
  }
  Sources sources;
  sources.push_back(from_memory(state.header, sample));
  const std::lock_guard lock(state.mutex);
  const Hdf5Session session;
  const auto begin = Clock::now();
  write_file(state.place.temporary(sample.index), state.place.part(sample.index),
             [&](hid_t file) { write_profile(file, state.header, sources); });
  state.finished = false;
  // Assembling takes as long at least.
  state.assembling = std::max(state.assembling, Clock::now() - begin);
  if (!state.joined) state.assemble_if_cheap();
}

/// A killed run leaves a p.h5 with nearly everything in it, if that costs little.
void Writer::State::assemble_if_cheap() {
  constexpr int kShare = 20;  // a twentieth of the time
  if (Clock::now() - last_assembled < assembling * kShare) return;
  try {
    assemble();
  } catch (const Error& error) {
    // The sample is safe in its part. finish() will tell, if it does not go away.
    warnings.emplace_back(error.what());
    assembling = std::max<Clock::duration>(assembling * 2, std::chrono::minutes(1));
    last_assembled = Clock::now();
  }
}

/// Writes the samples of these profiles into one, and says which they are. A part that cannot be
/// read is lost.
std::set<std::int64_t> Writer::State::gather(std::span<const Gathered> from, const fs::path& to) {
  Sources sources;
  for (const auto& [path, part] : from) {
    try {
      add_sources(open(path), sources);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unreadable || !part) throw;
      place.remove_part(*part);
      warnings.push_back(str("sample ", *part, " is lost: ", error.what()));
    }
  }
  std::sort(sources.begin(), sources.end(),
            [](const auto& a, const auto& b) { return a->about().index < b->about().index; });
  write_file(place.assembled(), to, [&](hid_t file) { write_profile(file, header, sources); });
  std::set<std::int64_t> held;
  for (const auto& source : sources) held.insert(source->about().index);
  return held;
}

/// Files on the way into the profile, which are gone with the object.
class Writer::State::OnTheWay {
 public:
  explicit OnTheWay(const Workplace& place) : place_(place) {}
  ~OnTheWay() {
    std::error_code left_behind;
    while (count_ > 0) fs::remove(place_.gathered(--count_), left_behind);
  }
  OnTheWay(const OnTheWay&) = delete;
  OnTheWay& operator=(const OnTheWay&) = delete;
  fs::path next() { return place_.gathered(count_++); }

 private:
  const Workplace& place_;
  int count_ = 0;
};

/// Writes p.h5 anew from itself and the parts. Of more parts than may be open at once, so many at a
/// time become one file first: then the time grows with the samples, not with their square.
void Writer::State::assemble() {
  const auto begin = Clock::now();
  constexpr std::size_t kOpenFiles = 200;  // a process may have 1024
  std::vector<Gathered> files;
  for (const auto index : place.parts()) {
    if (in_profile.count(index) > 0)
      place.remove_part(index);
    else
      files.push_back({place.part(index), index});
  }
  const bool has_profile = is_there(path()) && !is_old();
  if (files.empty() && has_profile) return;
  const std::vector<Gathered> parts = files;
  OnTheWay on_the_way(place);
  while (files.size() > kOpenFiles) {
    std::vector<Gathered> fewer;
    for (std::size_t i = 0; i < files.size(); i += kOpenFiles) {
      fewer.push_back({on_the_way.next(), {}});
      gather(std::span(files).subspan(i, std::min(kOpenFiles, files.size() - i)),
             fewer.back().path);
    }
    files = std::move(fewer);
  }
  if (has_profile) files.push_back({path(), {}});
  in_profile = gather(files, path());
  place.end_anew();
  for (const auto& [path, part] : parts) place.remove_part(*part);
  last_assembled = Clock::now();
  assembling = last_assembled - begin;
}

void Writer::finish() {
  State& state = *state_;
  if (state.joined) return;
  const std::lock_guard lock(state.mutex);
  const Hdf5Session session;
  state.assemble();
  state.finished = true;
}

}  // namespace kvatlas::profile
