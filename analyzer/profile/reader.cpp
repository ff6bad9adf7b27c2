// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <list>
#include <mutex>
#include <utility>

#include "analyzer/profile/profile_file_impl.hpp"
#include "analyzer/profile/workplace_impl.hpp"
#include "base/half.hpp"

namespace kvatlas::profile {

struct Reader::State {
  explicit State(const std::filesystem::path& path) : file(path) {}

  const Description& described(const std::string& name) const {
    const Description* found = find_description(file.header(), name);
    if (!found)
      fail(ErrorCode::unsupported, quoted(file.path().string(), 400), " has no array ",
           quoted(name));
    return *found;
  }
  /// Of an array that lies with the samples.
  const Description& described_of_sample(const std::string& name) const {
    const Description& array = described(name);
    if (!array.sizes.empty())
      fail(ErrorCode::internal, "array ", quoted(name), " is a statistic over all samples");
    return array;
  }

  /// Runs with the file to itself, and puts the file's name in front of an Error.
  template <class Fn>
  auto locked(Fn&& fn) const {
    const std::lock_guard turn(mutex);
    return in_context(quoted(file.path().string(), 400), fn);
  }
  /// The elements of what `read` reads so.
  template <class Read>
  Array decoded(const Read& read) const {
    RawBlock block = locked(read);
    return in_context(quoted(file.path().string(), 400), [&] { return decode(std::move(block)); });
  }

  /// An array of which blocks are read: the last few stay open, for opening one goes through all of
  /// its chunks. Within the lock.
  const StoredArray& opened(std::size_t position, const Description& array) {
    constexpr std::size_t kMostOpen = 8;
    const std::pair wanted(position, &array);
    const auto found = std::find_if(open.begin(), open.end(),
                                    [&](const auto& entry) { return entry.first == wanted; });
    if (found != open.end()) {
      open.splice(open.begin(), open, found);
      return open.front().second;
    }
    open.emplace_front(wanted, file.sample_array(position, array));
    if (open.size() > kMostOpen) open.pop_back();
    return open.front().second;
  }

  mutable std::mutex mutex;
  ProfileFile file;
  std::list<std::pair<std::pair<std::size_t, const Description*>, StoredArray>> open;
};

namespace {

bool is_missing(const Array& row) {
  switch (row.type) {
    case Type::f32: {
      const auto values = row.values<float>();
      return std::all_of(values.begin(), values.end(), [](float v) { return std::isnan(v); });
    }
    case Type::f16: {
      const auto values = row.values<std::uint16_t>();
      return std::all_of(values.begin(), values.end(),
                         [](std::uint16_t v) { return std::isnan(f16_to_float(v)); });
    }
    default:
      return std::all_of(row.bytes.begin(), row.bytes.end(),
                         [](std::byte b) { return b == std::byte{0xff}; });
  }
}

/// The block with the leading indices `at`, as it is stored.
RawBlock read_at(const StoredArray& stored, std::span<const std::int64_t> at) {
  Sizes start(stored.grid.shape.size(), 0), extent = stored.grid.shape;
  if (at.size() > extent.size())
    fail(ErrorCode::internal, quoted(stored.path), " has ", extent.size(), " axes, and ", at.size(),
         " indices were asked for");
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (at[i] < 0 || at[i] >= extent[i])
      fail(ErrorCode::internal, quoted(stored.path), " has sizes ", list_str(extent),
           ", and index ", at[i], " of axis ", i, " was asked for");
    start[i] = at[i];
    extent[i] = 1;
  }
  return read_raw(stored, start, extent);
}

/// The block of `extent` at `start`, as it is stored.
RawBlock read_block(const StoredArray& stored, const Sizes& start, const Sizes& extent) {
  const Sizes& shape = stored.grid.shape;
  bool inside = start.size() == shape.size() && extent.size() == shape.size();
  for (std::size_t i = 0; inside && i < shape.size(); ++i)
    inside =
        start[i] >= 0 && extent[i] >= 0 && start[i] <= shape[i] && extent[i] <= shape[i] - start[i];
  if (!inside)
    fail(ErrorCode::internal, quoted(stored.path), " has sizes ", list_str(shape),
         ", and a block of ", list_str(extent), " at ", list_str(start), " was asked for");
  return read_raw(stored, start, extent);
}

/// The array without its first axes, which have one index each.
Array without_axes(Array array, std::size_t count) {
  array.shape.erase(array.shape.begin(), array.shape.begin() + static_cast<std::ptrdiff_t>(count));
  return array;
}

}  // namespace

namespace {

bool is_only_parts(const std::filesystem::path& path) {
  return !is_there(path) && Workplace::has_parts(path);
}

}  // namespace

bool is_profile(const std::filesystem::path& path) {
  return begins_as_hdf5(path) || is_only_parts(path);
}

Reader::Reader(const std::filesystem::path& path) {
  in_context(quoted(path.string(), 400), [&] {
    if (is_only_parts(path))
      fail(ErrorCode::unreadable, "this profile is unfinished, its samples lie in ",
           quoted(Workplace::folder_of(path).string(), 400),
           ": 'kvatlas profile' with --resume goes on with it");
    state_ = std::make_unique<State>(path);
  });
}

Reader::~Reader() = default;

const Header& Reader::header() const { return state_->file.header(); }
bool Reader::complete() const { return state_->file.complete(); }
const std::vector<Sample>& Reader::samples() const { return state_->file.samples(); }

void Reader::require_all_read() const {
  state_->locked([&] {
    if (const auto& trouble = state_->file.trouble(); !trouble.empty())
      fail(ErrorCode::unreadable, trouble);
  });
}

std::vector<std::int32_t> Reader::tokens(std::size_t position) const {
  const Array tokens = state_->decoded(
      [&] { return read_raw(state_->file.sample_array(position, tokens_description())); });
  const auto values = tokens.values<std::int32_t>();
  return {values.begin(), values.end()};
}

bool Reader::has(const std::string& name) const {
  const Description* array = find_description(state_->file.header(), name);
  if (!array) return false;
  return state_->locked([&] {
    if (!array->sizes.empty()) return state_->file.has_statistic(*array);
    for (std::size_t i = 0; i < samples().size(); ++i)
      if (state_->file.has_array(i, *array)) return true;
    return false;
  });
}

bool Reader::has(std::size_t position, const std::string& name) const {
  const Description* array = find_description(state_->file.header(), name);
  if (!array) return false;
  if (array->sizes.empty())
    return state_->locked([&] { return state_->file.has_array(position, *array); });
  return state_->locked([&] { return state_->file.has_statistic(*array); }) &&
         !is_missing(this->array(position, name));
}

Array Reader::statistic(const std::string& name) const {
  const Description& array = state_->described(name);
  if (array.sizes.empty())
    fail(ErrorCode::internal, "array ", quoted(name), " is no statistic over all samples");
  return state_->decoded([&] { return read_raw(state_->file.statistic(array)); });
}

Array Reader::array(std::size_t position, const std::string& name,
                    std::span<const std::int64_t> at) const {
  const Description& array = state_->described(name);
  if (array.sizes.empty())
    return without_axes(
        state_->decoded([&] { return read_at(state_->file.sample_array(position, array), at); }),
        at.size());
  Sizes indices = {static_cast<std::int64_t>(position)};
  indices.insert(indices.end(), at.begin(), at.end());
  return without_axes(
      state_->decoded([&] { return read_at(state_->file.statistic(array), indices); }),
      indices.size());
}

std::vector<std::int64_t> Reader::shape(std::size_t position, const std::string& name) const {
  const Description& array = state_->described_of_sample(name);
  return state_->locked([&] { return state_->file.sample_array(position, array).grid.shape; });
}

Array Reader::block(std::size_t position, const std::string& name,
                    std::span<const std::int64_t> start,
                    std::span<const std::int64_t> extent) const {
  const Description& array = state_->described_of_sample(name);
  return state_->decoded([&] {
    return read_block(state_->opened(position, array), {start.begin(), start.end()},
                      {extent.begin(), extent.end()});
  });
}

}  // namespace kvatlas::profile
