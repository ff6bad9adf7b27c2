// SPDX-License-Identifier: Apache-2.0
#include "analyzer/checkpoint/safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <system_error>

#include "base/error.hpp"
#include "base/json_text.hpp"

namespace kvatlas::model {
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kMaxIndexBytes = 32 << 20;
constexpr std::size_t kMaxDimensions = 8;
constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

/// Bytes of one value of a dtype; nullopt for those not known, or smaller than a byte.
std::optional<std::int64_t> value_bytes(std::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64" || dtype == "C64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL" || dtype.starts_with("F8_")) return 1;
  return std::nullopt;
}

/// What the header says of one tensor.
struct Entry {
  StoredTensor tensor;
  bool has_shape = false;
  std::vector<std::int64_t> offsets;
};

/// Takes the header's events one by one, so that a hostile header of 100 MB makes no tree: an
/// object of objects, each with dtype, shape and data_offsets; `__metadata__` is skipped.
class HeaderReader : public nlohmann::json::json_sax_t {
 public:
  std::vector<Entry> entries;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a truth value"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return unexpected("a fraction"); }
  bool binary(binary_t&) override { return unexpected("bytes"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max()))
      return unexpected("a number too large");
    if (place_ == Place::shape) {
      auto& shape = entries.back().tensor.shape;
      if (shape.size() == kMaxDimensions) return unexpected("a ninth dimension");
      shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (place_ == Place::offsets) {
      auto& offsets = entries.back().offsets;
      if (offsets.size() == 2) return unexpected("a third offset");
      offsets.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    return unexpected("a number");
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) return true;
    if (place_ != Place::tensor || field_ != "dtype") return unexpected("a string");
    StoredTensor& tensor = entries.back().tensor;
    if (value == "F32")
      tensor.type = TensorType::f32;
    else if (value == "F16")
      tensor.type = TensorType::f16;
    else if (value == "BF16")
      tensor.type = TensorType::bf16;
    else if (value == "F8_E4M3")
      tensor.type = TensorType::f8_e4m3;
    else if (value == "I8")
      tensor.type = TensorType::i8;
    else if (value == "U8")
      tensor.type = TensorType::u8;
    else if (value == "I32")
      tensor.type = TensorType::i32;
    else
      tensor.foreign_type = value.empty() ? "''" : value;
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::top;
    } else if (place_ == Place::top && field_ == "__metadata__") {
      place_ = Place::metadata;
    } else if (place_ == Place::top) {
      place_ = Place::tensor;
      if (!names_.insert(field_).second)
        fail(ErrorCode::unreadable, "tensor ", quoted(field_), " is there twice");
      entries.emplace_back().tensor.name = field_;
      seen_ = 0;
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool key(string_t& name) override {
    field_ = name;
    if (place_ == Place::tensor) {
      const unsigned bit = name == "dtype"          ? 1u
                           : name == "shape"        ? 2u
                           : name == "data_offsets" ? 4u
                                                    : 0u;
      if (bit == 0 || (seen_ & bit) != 0)
        return unexpected(bit == 0 ? "an unknown key" : "a second one");
      seen_ |= bit;
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor && seen_ != 7u)
      fail(ErrorCode::unreadable, "tensor ", quoted(entries.back().tensor.name), ": ",
           (seen_ & 1u) == 0   ? "dtype"
           : (seen_ & 2u) == 0 ? "shape"
                               : "data_offsets",
           " is missing");
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::tensor || (field_ != "shape" && field_ != "data_offsets"))
      return unexpected("an array");
    place_ = field_ == "shape" ? Place::shape : Place::offsets;
    return true;
  }

  bool end_array() override {
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::json::exception& error) override {
    fail(ErrorCode::unreadable, "the header is not valid JSON: ", json_complaint(error));
  }

 private:
  enum class Place { outside, top, metadata, tensor, shape, offsets };

  [[noreturn]] bool unexpected(const char* what) const {
    if (place_ == Place::outside || place_ == Place::top)
      fail(ErrorCode::unreadable, "the header holds ", what, " where a tensor's entry is expected");
    if (place_ == Place::metadata)
      fail(ErrorCode::unreadable, "'__metadata__' ", quoted(field_), ": found ", what,
           ", expected a string");
    fail(ErrorCode::unreadable, "tensor ", quoted(entries.back().tensor.name), ": ", quoted(field_),
         ": found ", what, ", which is not expected there");
  }

  Place place_ = Place::outside;
  std::string field_;
  std::set<std::string> names_;
  unsigned seen_ = 0;  // bits: dtype, shape, data_offsets
};

void check_size(const StoredTensor& tensor, std::int64_t bytes) {
  const auto count = value_count(tensor.shape);
  const auto each = value_bytes(type_name(tensor));
  if (!each) {
    if (tensor.foreign_type.empty())
      fail(ErrorCode::internal, "no size for the dtype ", type_name(tensor));
    return;  // its size cannot be told, and it is never handed out
  }
  std::int64_t expected = 0;
  if (!count || __builtin_mul_overflow(*count, *each, &expected))
    fail(ErrorCode::unreadable, "tensor ", quoted(tensor.name), ": impossible shape ",
         list_str(tensor.shape));
  if (bytes != expected)
    fail(ErrorCode::unreadable, "tensor ", quoted(tensor.name), ": ", bytes, " bytes, expected ",
         expected, " for shape ", list_str(tensor.shape), " of ", type_name(tensor));
}

}  // namespace

/// A link may lead to a file of the same folder, or from a snapshot of the hub's cache to its
/// blobs; to nothing else.
std::filesystem::path file_in_folder(const std::filesystem::path& folder, const std::string& name) {
  const auto path = folder / name;
  std::error_code error;
  const auto real_folder = std::filesystem::canonical(folder, error);
  auto real = error ? std::filesystem::path() : std::filesystem::canonical(path, error);
  if (error == std::errc::too_many_symbolic_link_levels)
    fail(ErrorCode::unreadable, quoted(path.string(), 400), " is a link that leads back to itself");
  if (error == std::errc::no_such_file_or_directory)
    fail(ErrorCode::unreadable, "there is no file ", quoted(path.string(), 400));
  if (error)
    fail(ErrorCode::unreadable, "cannot open ", quoted(path.string(), 400), ": ", error.message());
  const auto snapshots = real_folder.parent_path();
  const bool hub_blob = snapshots.filename() == "snapshots" &&
                        real.parent_path() == snapshots.parent_path() / "blobs";
  if (real.parent_path() != real_folder && !hub_blob)
    fail(ErrorCode::unreadable, quoted(path.string(), 400),
         " is a link that leads out of its folder");
  return real;
}

namespace {

/// The shards that an index names, and for each tensor the shard it should lie in.
std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  return in_context(quoted(path.string(), 400), [&] {
    const auto index = parse_json(read_text_file(path, kMaxIndexBytes), 4);
    const auto map = index.is_object() ? index.find("weight_map") : index.end();
    if (map == index.end() || !map->is_object() || map->empty())
      fail(ErrorCode::unreadable, "expected an object 'weight_map' of tensor and file names");
    std::map<std::string, std::string> shards;
    for (const auto& [tensor, file] : map->items()) {
      if (!file.is_string())
        fail(ErrorCode::unreadable, "tensor ", quoted(tensor), ": expected the name of a file");
      const auto& name = file.get_ref<const std::string&>();
      if (!name.ends_with(".safetensors") || name.find('/') != name.npos ||
          name.find('\\') != name.npos || name.find('\0') != name.npos)
        fail(ErrorCode::unreadable, "tensor ", quoted(tensor), ": ", quoted(name),
             " is not the plain name of a .safetensors file");
      shards.emplace(tensor, name);
    }
    return shards;
  });
}

}  // namespace

std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes) {
  std::uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes)
    fail(ErrorCode::unreadable, "not a safetensors file: it has ", bytes.size(),
         " bytes, fewer than the header's length takes");
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (header_bytes > kMaxHeaderBytes)
    fail(ErrorCode::unreadable, "not a safetensors file: a header of ", header_bytes,
         " bytes, expected at most ", kMaxHeaderBytes);
  if (header_bytes > bytes.size() - sizeof header_bytes)
    fail_cut("the file is cut: a header of ", header_bytes, " bytes, ",
             bytes.size() - sizeof header_bytes, " left in the file");
  const auto header = bytes.subspan(sizeof header_bytes, header_bytes);
  const auto data = bytes.subspan(sizeof header_bytes + header_bytes);

  HeaderReader reader;
  const auto* text = reinterpret_cast<const char*>(header.data());
  nlohmann::json::sax_parse(text, text + header.size(), &reader);

  auto& entries = reader.entries;
  for (Entry& entry : entries) {
    const std::string name = quoted(entry.tensor.name);
    if (entry.offsets.size() != 2 || entry.offsets[0] > entry.offsets[1])
      fail(ErrorCode::unreadable, "tensor ", name, ": data_offsets ", list_str(entry.offsets),
           ", expected begin and end");
    if (static_cast<std::uint64_t>(entry.offsets[1]) > data.size())
      fail_cut("tensor ", name, ": its data end at byte ", entry.offsets[1], ", the file has ",
               data.size(), " bytes of data: it is cut");
    const std::int64_t size = entry.offsets[1] - entry.offsets[0];
    check_size(entry.tensor, size);
    entry.tensor.bytes = data.subspan(entry.offsets[0], size);
  }

  // The tensors must tile the data.
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
  std::int64_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.offsets[0] != end)
      fail(ErrorCode::unreadable, "tensor ", quoted(entry.tensor.name), " begins at byte ",
           entry.offsets[0], entry.offsets[0] < end ? " and overlaps" : " and leaves a hole after",
           " the one before, which ends at byte ", end);
    end = entry.offsets[1];
  }
  if (static_cast<std::uint64_t>(end) != data.size())
    fail(ErrorCode::unreadable, "the file has ", data.size(), " bytes of data, its tensors take ",
         end);

  std::vector<StoredTensor> tensors;
  tensors.reserve(entries.size());
  for (Entry& entry : entries) tensors.push_back(std::move(entry.tensor));
  return tensors;
}

std::map<std::string, std::string> tensor_files(const std::filesystem::path& folder) {
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(folder / kIndexName, error)))
    return read_index(file_in_folder(folder, kIndexName));
  const MappedFile file = MappedFile::open(file_in_folder(folder, kSingleName));
  std::map<std::string, std::string> files;
  in_context(quoted((folder / kSingleName).string(), 400), [&] {
    for (auto& tensor : parse_safetensors(file.bytes()))
      files.emplace(std::move(tensor.name), kSingleName);
    file.require_intact();
  });
  return files;
}

SafetensorsFolder SafetensorsFolder::open(const std::filesystem::path& folder) {
  std::map<std::string, std::string> shard_of;
  std::set<std::string> names;
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(folder / kSingleName, error))) {
    names.insert(kSingleName);
  } else {
    shard_of = read_index(file_in_folder(folder, kIndexName));
    for (const auto& [tensor, name] : shard_of) names.insert(name);
  }

  SafetensorsFolder result;
  std::map<std::string, std::string, std::less<>> found_in;
  for (const auto& name : names) {
    MappedFile file = MappedFile::open(file_in_folder(folder, name));
    in_context(quoted((folder / name).string(), 400), [&] {
      for (auto& tensor : parse_safetensors(file.bytes())) {
        const auto [earlier, is_new] = found_in.emplace(tensor.name, name);
        if (!is_new)
          fail(ErrorCode::unreadable, "tensor ", quoted(tensor.name), " lies in ",
               quoted(earlier->second), " too");
        result.index_.emplace(tensor.name, result.tensors_.size());
        result.tensors_.push_back(std::move(tensor));
      }
      file.require_intact();
    });
    result.files_.push_back(std::move(file));
  }
  for (const auto& [tensor, name] : shard_of) {
    const auto found = found_in.find(tensor);
    if (found == found_in.end() || found->second != name)
      fail(ErrorCode::unreadable, (folder / kIndexName).string(), ": tensor ", quoted(tensor),
           " should lie in ", quoted(name), ", which does not hold it");
  }
  return result;
}

const StoredTensor* SafetensorsFolder::find(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) return nullptr;
  const StoredTensor& tensor = tensors_[found->second];
  require_decodable(tensor);
  return &tensor;
}

}  // namespace kvatlas::model
