// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fstream>
#include <iomanip>
#include <limits>
#include <sstream>

#include "analyzer/profile/profile_file_impl.hpp"
#include "analyzer/profile/workplace_impl.hpp"
#include "base/share_code.hpp"

namespace kvatlas::profile {
namespace {

std::string group_of(std::int64_t index) {
  std::ostringstream name;
  name << "samples/" << std::setw(6) << std::setfill('0') << index;
  return name.str();
}

Array read_row_array(const StoredArray& stored, std::size_t position) {
  Sizes start(stored.grid.shape.size(), 0), extent = stored.grid.shape;
  start[0] = static_cast<std::int64_t>(position);
  extent[0] = 1;
  return decode(read_raw(stored, start, extent));
}

}  // namespace

std::string shown(const std::filesystem::path& path) { return quoted(path.string(), 400); }

bool begins_as_hdf5(const std::filesystem::path& path) {
  std::error_code problem;
  if (!std::filesystem::is_regular_file(path, problem)) return false;
  std::string start(kFileSignature.size(), '\0');
  std::ifstream(path, std::ios::binary).read(start.data(), std::ssize(start));
  return start == kFileSignature;
}

void require_replaceable(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  if (!is_there(path) || begins_as_hdf5(path)) return;
  const bool regular = fs::is_regular_file(path);
  if (!regular || fs::file_size(path) > 0)
    fail(ErrorCode::usage, quoted(path.string(), 400), " is not a ",
         regular ? "profile" : "regular file", ", so it is not replaced");
}

const Description& tokens_description() {
  static const Description tokens = {"tokens",  {"token"}, "id", "The prompt's tokens.",
                                     Type::i32, {},        0};
  return tokens;
}

Grid statistic_grid(const Description& array, std::int64_t n_samples) {
  Grid grid{array.sizes, chunk_sizes(array.sizes, 0)};
  grid.shape.insert(grid.shape.begin(), n_samples);
  grid.chunk.insert(grid.chunk.begin(), 1);
  return grid;
}

Grid sample_grid(const Description& array, const Sizes& shape) {
  return {shape, chunk_sizes(shape, array.single_axes)};
}

ProfileFile::ProfileFile(std::filesystem::path path)
    : path_(std::move(path)),
      file_(path_),
      root_(file_, file_.root()),
      header_(read_header(root_)) {
  read_samples();
}

void ProfileFile::read_samples() {
  const StoredArray stored = open_array(root_, "sample_index");
  if (stored.type != Type::i64 || stored.grid.shape.size() != 1)
    fail(ErrorCode::unreadable, "'sample_index' is ", type_name(stored.type), " ",
         list_str(stored.grid.shape), ", expected int64 of one axis");
  const std::int64_t count = stored.grid.shape[0];
  constexpr std::int64_t kSmallestSample = 64;  // bytes of an object's header
  if (count > header_.planned_samples || count > file_.size() / kSmallestSample)
    fail(ErrorCode::unreadable, "'sample_index' has ", count, " samples, with ",
         header_.planned_samples, " planned and ", file_.size(), " bytes in the file");
  const Array indices = decode(read_raw(stored));
  const std::int64_t most = std::min(file_.size(), kMostText);
  std::int64_t last = -1;
  for (const std::int64_t index : indices.values<std::int64_t>()) {
    if (index <= last || index >= header_.planned_samples)
      fail(ErrorCode::unreadable, "'sample_index' has ", index, " after ", last, ", with ",
           header_.planned_samples, " samples planned");
    last = index;
    in_context(str("sample ", index), [&] {
      const StoredObject group = open_group(root_, group_of(index));
      Sample sample;
      sample.index = read_integer(group, "index");
      sample.id = read_string(group, "id", most);
      sample.task = read_string(group, "task", most);
      sample.length = read_integer(group, "length");
      sample.depth = read_double(group, "depth");
      sample.seed = read_integer(group, "seed");
      sample.n_tokens = read_integer(group, "n_tokens");
      sample.answers = read_strings(group, "answers", most);
      sample.has_scoring = has_attribute(group, "metric");
      if (sample.has_scoring) {
        sample.group = read_string(group, "group", most);
        sample.metric = read_string(group, "metric", most);
        sample.all_classes = read_strings(group, "all_classes", most);
        sample.language = read_string(group, "language", most);
        sample.cut_tokens = read_integer(group, "cut_tokens");
        if (has_attribute(group, "max_new_tokens"))
          sample.max_new_tokens = read_integer(group, "max_new_tokens");
      } else if (sample.seed >= 0) {  // generated prompts of one seed were made of one text
        sample.group = str(sample.task, "/", sample.seed);
      }
      if (sample.index != index)
        fail(ErrorCode::unreadable, "its attribute 'index' is ", sample.index);
      if (sample.n_tokens < 0 || sample.n_tokens > std::numeric_limits<std::int32_t>::max())
        fail(ErrorCode::unreadable, "its attribute 'n_tokens' is ", sample.n_tokens);
      if (sample.cut_tokens < 0)
        fail(ErrorCode::unreadable, "its attribute 'cut_tokens' is ", sample.cut_tokens);
      if (sample.max_new_tokens < 0 || sample.max_new_tokens > kMostNewTokens)
        fail(ErrorCode::unreadable, "its attribute 'max_new_tokens' is ", sample.max_new_tokens);
      samples_.push_back(std::move(sample));
    });
  }
}

bool ProfileFile::has_statistic(const Description& array) const {
  return has_object(root_, "statistics/" + array.name);
}

StoredArray ProfileFile::statistic(const Description& array) const {
  StoredArray stored = open_array(root_, "statistics/" + array.name);
  const Sizes expected = statistic_grid(array, static_cast<std::int64_t>(samples_.size())).shape;
  if (stored.type != array.type || stored.grid.shape != expected)
    fail(ErrorCode::unreadable, quoted(stored.path), " is ", type_name(stored.type), " ",
         list_str(stored.grid.shape), ", expected ", type_name(array.type), " ",
         list_str(expected));
  return stored;
}

bool ProfileFile::has_array(std::size_t position, const Description& array) const {
  return has_object(root_, group_of(samples_.at(position).index) + "/" + array.name);
}

StoredArray ProfileFile::sample_array(std::size_t position, const Description& array) const {
  StoredArray stored = open_array(root_, group_of(samples_.at(position).index) + "/" + array.name);
  const bool tokens = &array == &tokens_description();
  if (stored.type != array.type || stored.grid.shape.size() != array.axes.size() ||
      (tokens && stored.grid.shape[0] != samples_[position].n_tokens))
    fail(ErrorCode::unreadable, quoted(stored.path), " is ", type_name(stored.type), " ",
         list_str(stored.grid.shape), ", expected ", type_name(array.type), " of axes ",
         list_str(array.axes), tokens ? str(" with ", samples_[position].n_tokens) : "");
  return stored;
}

void ProfileFile::require_intact() const {
  for (const Description& array : header_.arrays)
    if (!array.sizes.empty() && has_statistic(array)) {
      const StoredArray stored = statistic(array);
      for (std::size_t i = 0; i < samples_.size(); ++i) read_row_array(stored, i);
    }
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    decode(read_raw(sample_array(i, tokens_description())));
    for (const Description& array : header_.arrays)
      if (array.sizes.empty() && has_array(i, array)) decode(read_raw(sample_array(i, array)));
  }
}

namespace {

class MemorySource : public SampleSource {
 public:
  MemorySource(const Header& header, const Sample& sample) {
    static_cast<PromptDescription&>(about_) = static_cast<const PromptDescription&>(sample);
    about_.index = sample.index;
    about_.n_tokens = static_cast<std::int64_t>(sample.tokens.size());
    about_.cut_tokens = sample.cut_tokens;
    about_.has_scoring = sample.has_scoring;
    Array tokens(Type::i32, {about_.n_tokens});
    std::copy(sample.tokens.begin(), sample.tokens.end(), tokens.values<std::int32_t>().begin());
    encode(tokens_description(), tokens);
    for (const auto& [name, array] : sample.arrays) encode(*find_description(header, name), array);
  }

  const Sample& about() const override { return about_; }
  std::optional<Sizes> shape(const Description& array) override {
    const auto found = arrays_.find(&array);
    return found == arrays_.end() ? std::nullopt : std::optional(found->second.first);
  }
  Bytes chunk(const Description& array, std::int64_t k) override {
    return std::move(arrays_.at(&array).second[k]);
  }

 private:
  void encode(const Description& description, const Array& array) {
    arrays_[&description] = {array.shape,
                             encode_chunks(array, sample_grid_or_row(description, array.shape))};
  }
  static Grid sample_grid_or_row(const Description& description, const Sizes& shape) {
    return description.sizes.empty() ? sample_grid(description, shape)
                                     : Grid{shape, chunk_sizes(shape, 0)};
  }

  Sample about_;
  std::map<const Description*, std::pair<Sizes, std::vector<Bytes>>> arrays_;
};

/// A profile whose samples are copied. Statistics are copied one after the other, so the one that
/// is open stays so.
struct CopiedFile {
  std::shared_ptr<const ProfileFile> file;
  std::string open_name;
  StoredArray open;
};

class FileSource : public SampleSource {
 public:
  FileSource(std::shared_ptr<CopiedFile> from, std::size_t position, std::int64_t index)
      : from_(std::move(from)), position_(position), about_(from_->file->samples()[position]) {
    about_.index = index;
  }

  const Sample& about() const override { return about_; }

  std::optional<Sizes> shape(const Description& array) override {
    if (array.sizes.empty()) {
      if (!from_->file->has_array(position_, array)) return std::nullopt;
      return open(array).grid.shape;
    }
    if (!from_->file->has_statistic(array)) return std::nullopt;
    return array.sizes;
  }

  Bytes chunk(const Description& array, std::int64_t k) override {
    return in_context(shown(from_->file->path()), [&] {
      const StoredArray& stored = open(array);
      const bool fixed = !array.sizes.empty();
      const Grid grid = fixed ? statistic_grid(array, stored.grid.shape[0])
                              : sample_grid(array, stored.grid.shape);
      const auto row = static_cast<std::int64_t>(position_);
      const std::int64_t number = fixed ? row * (grid.size() / stored.grid.shape[0]) + k : k;
      if (stored.grid.chunk == grid.chunk && stored.shuffled && stored.deflated)
        return read_stored_chunk(stored, number);
      // Somebody else's chunks: cut anew.
      Array whole = fixed ? read_row_array(stored, position_) : decode(read_raw(stored));
      return encode_chunk(whole, {whole.shape, grid.chunk}, k);
    });
  }

 private:
  const StoredArray& open(const Description& array) {
    const std::string name =
        array.sizes.empty() ? str(position_, '/', array.name) : "statistics/" + array.name;
    if (from_->open_name != name) {
      from_->open_name.clear();
      from_->open = array.sizes.empty() ? from_->file->sample_array(position_, array)
                                        : from_->file->statistic(array);
      from_->open_name = name;
    }
    return from_->open;
  }

  std::shared_ptr<CopiedFile> from_;
  std::size_t position_;
  Sample about_;
};

/// What an array is, beside it, for those who read the file with other tools.
void describe(const H5Dataset& dataset, const Description& array, bool all_samples) {
  std::vector<std::string> axes = array.axes;
  if (all_samples) axes.insert(axes.begin(), "sample");
  write_attribute(dataset.get(), "axes", axes);
  write_attribute(dataset.get(), "unit", array.unit);
  write_attribute(dataset.get(), "meaning", array.meaning);
  if (array.type != Type::u8 || array.unit != kLog2OfAShare) return;
  write_attribute(dataset.get(), "scale_factor", share_code::kScale);
  write_attribute(dataset.get(), "add_offset", share_code::kOffset);
}

/// The row of a sample that lacks a statistic: NaN, or -1.
Array missing_row(const Description& array) {
  Array row(array.type, array.sizes);
  const auto fill = [&](auto value) {
    auto values = row.values<decltype(value)>();
    std::fill(values.begin(), values.end(), value);
  };
  switch (array.type) {
    case Type::f32:
      fill(std::numeric_limits<float>::quiet_NaN());
      break;
    case Type::f16:
      fill(std::uint16_t{0x7e00});
      break;
    default:
      std::fill(row.bytes.begin(), row.bytes.end(), std::byte{0xff});
  }
  return row;
}

void write_statistic(hid_t file, const Description& array, const Sources& sources) {
  std::vector<bool> has;
  for (const auto& source : sources) has.push_back(source->shape(array).has_value());
  if (std::find(has.begin(), has.end(), true) == has.end()) return;
  const Grid grid = statistic_grid(array, static_cast<std::int64_t>(sources.size()));
  const Grid row{array.sizes, chunk_sizes(array.sizes, 0)};
  std::vector<Bytes> missing;
  if (std::find(has.begin(), has.end(), false) != has.end())
    missing = encode_chunks(missing_row(array), row);
  H5Dataset dataset = make_dataset(file, "statistics/" + array.name, array.type, grid);
  for (std::size_t i = 0; i < sources.size(); ++i)
    for (std::int64_t k = 0; k < row.size(); ++k)
      write_chunk(dataset, grid, static_cast<std::int64_t>(i) * row.size() + k,
                  has[i] ? sources[i]->chunk(array, k) : missing[k]);
  describe(dataset, array, true);
  dataset.close(array.name);
}

void write_sample_array(const H5Group& group, const Description& array, SampleSource& source) {
  const auto shape = source.shape(array);
  if (!shape) return;
  const Grid grid = sample_grid(array, *shape);
  H5Dataset dataset = make_dataset(group.get(), array.name, array.type, grid);
  for (std::int64_t k = 0; k < grid.size(); ++k)
    write_chunk(dataset, grid, k, source.chunk(array, k));
  describe(dataset, array, false);
  dataset.close(array.name);
}

void write_sample(hid_t file, const Header& header, SampleSource& source) {
  const Sample& about = source.about();
  H5Group group = make_groups(file, group_of(about.index));
  write_attribute(group.get(), "index", about.index);
  write_attribute(group.get(), "id", about.id);
  write_attribute(group.get(), "task", about.task);
  write_attribute(group.get(), "length", about.length);
  write_attribute(group.get(), "depth", about.depth);
  write_attribute(group.get(), "seed", about.seed);
  write_attribute(group.get(), "n_tokens", about.n_tokens);
  write_attribute(group.get(), "answers", about.answers);
  if (about.has_scoring) {
    write_attribute(group.get(), "group", about.group);
    write_attribute(group.get(), "metric", about.metric);
    write_attribute(group.get(), "all_classes", about.all_classes);
    write_attribute(group.get(), "language", about.language);
    write_attribute(group.get(), "cut_tokens", about.cut_tokens);
    if (about.max_new_tokens > 0)
      write_attribute(group.get(), "max_new_tokens", about.max_new_tokens);
  }
  write_sample_array(group, tokens_description(), source);
  for (const Description& array : header.arrays)
    if (array.sizes.empty()) write_sample_array(group, array, source);
  group.close("writing a sample");
}

void write_index(hid_t file, const Sources& sources) {
  Array indices(Type::i64, {static_cast<std::int64_t>(sources.size())});
  for (std::size_t i = 0; i < sources.size(); ++i)
    indices.values<std::int64_t>()[i] = sources[i]->about().index;
  const Grid grid{indices.shape, chunk_sizes(indices.shape, 0)};
  H5Dataset dataset = make_dataset(file, "sample_index", Type::i64, grid);
  for (std::int64_t k = 0; k < grid.size(); ++k)
    write_chunk(dataset, grid, k, encode_chunk(indices, grid, k));
  dataset.close("sample_index");
}

}  // namespace

std::unique_ptr<SampleSource> from_memory(const Header& header, const Sample& sample) {
  return std::make_unique<MemorySource>(header, sample);
}

void add_sources(std::shared_ptr<const ProfileFile> file, Sources& sources,
                 const std::vector<std::int64_t>& index) {
  const auto from = std::make_shared<CopiedFile>();
  from->file = std::move(file);
  for (std::size_t i = 0; i < from->file->samples().size(); ++i)
    sources.push_back(std::make_unique<FileSource>(
        from, i, index.empty() ? from->file->samples()[i].index : index[i]));
}

void write_profile(hid_t file, const Header& header, const Sources& sources) {
  write_header(file, header);
  write_attribute(
      file, "complete",
      std::int64_t{static_cast<std::int64_t>(sources.size()) == header.planned_samples});
  write_index(file, sources);
  for (const Description& array : header.arrays)
    if (!array.sizes.empty()) write_statistic(file, array, sources);
  for (const auto& source : sources) write_sample(file, header, *source);
}

}  // namespace kvatlas::profile
