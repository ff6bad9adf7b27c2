// SPDX-License-Identifier: Apache-2.0
#include "analyzer/checkpoint/gguf.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/error.hpp"

namespace kvatlas::model {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read as it lies in memory");

/// Value types of the metadata, by their number in the file.
enum class MetadataType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

/// A tensor type by its number in the file. `ours` is nullopt for those that kvatlas cannot decode;
/// their block sizes are known all the same, to check where their bytes lie.
struct FileType {
  std::uint32_t number;
  const char* name;
  std::optional<TensorType> ours;
  BlockShape block;
};

constexpr FileType known(std::uint32_t number, TensorType type) {
  return {number, nullptr, type, {0, 0}};
}

constexpr FileType kFileTypes[] = {
    known(0, TensorType::f32),     known(1, TensorType::f16),      known(2, TensorType::q4_0),
    known(3, TensorType::q4_1),    known(6, TensorType::q5_0),     known(7, TensorType::q5_1),
    known(8, TensorType::q8_0),    {9, "Q8_1", {}, {32, 40}},      known(10, TensorType::q2_k),
    known(11, TensorType::q3_k),   known(12, TensorType::q4_k),    known(13, TensorType::q5_k),
    known(14, TensorType::q6_k),   {15, "Q8_K", {}, {256, 292}},   known(16, TensorType::iq2_xxs),
    known(17, TensorType::iq2_xs), known(18, TensorType::iq3_xxs), known(19, TensorType::iq1_s),
    known(20, TensorType::iq4_nl), known(21, TensorType::iq3_s),   known(22, TensorType::iq2_s),
    known(23, TensorType::iq4_xs), {24, "I8", {}, {1, 1}},         {25, "I16", {}, {1, 2}},
    {26, "I32", {}, {1, 4}},       {27, "I64", {}, {1, 8}},        {28, "F64", {}, {1, 8}},
    known(29, TensorType::iq1_m),  known(30, TensorType::bf16),    known(34, TensorType::tq1_0),
    known(35, TensorType::tq2_0),  known(39, TensorType::mxfp4),   {40, "NVFP4", {}, {64, 36}},
    {41, "Q1_0", {}, {128, 18}},
};

constexpr std::size_t kMaxKeyBytes = 65535;
constexpr std::int64_t kMaxAlignment = 1 << 20;

/// Reads forward through the header; whatever would pass the end is an Error.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::size_t position() const { return position_; }
  std::size_t left() const { return bytes_.size() - position_; }

  std::span<const std::byte> take(std::uint64_t count, const char* what) {
    if (count > left())
      fail_cut("the file ends inside ", what, ": ", count, " bytes wanted at byte ", position_,
               ", ", left(), " left");
    auto part = bytes_.subspan(position_, count);
    position_ += count;
    return part;
  }

  template <class T>
  T number(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string string(const char* what) {
    const auto part = take(number<std::uint64_t>(what), what);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

  /// A count of things of at least `least_bytes` each, which must still fit in the file.
  std::size_t count_of(std::uint64_t count, std::size_t least_bytes, const char* what) const {
    if (count > left() / least_bytes)
      fail(ErrorCode::unreadable, "the header counts ", count, ' ', what, ", more than the ",
           left(), " bytes left can hold");
    return count;
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
};

std::int64_t to_int64(std::uint64_t value) {
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    fail(ErrorCode::unreadable, "the number ", value, " is too large");
  return static_cast<std::int64_t>(value);
}

bool to_bool(std::uint8_t value) {
  if (value > 1)
    fail(ErrorCode::unreadable, "found ", int{value}, ", expected a truth value, 0 or 1");
  return value == 1;
}

/// What `read` gives for a number of this kind: it is called with a zero of the type that the file
/// stores, and with the function that turns such a number into the one that Value holds.
template <class Read>
GgufFile::Value read_number(std::uint32_t kind, const char* what, const Read& read) {
  const auto whole = [](auto stored) { return std::int64_t{stored}; };
  const auto real = [](auto stored) { return double{stored}; };
  switch (static_cast<MetadataType>(kind)) {
    case MetadataType::u8:
      return read(std::uint8_t{}, whole);
    case MetadataType::i8:
      return read(std::int8_t{}, whole);
    case MetadataType::u16:
      return read(std::uint16_t{}, whole);
    case MetadataType::i16:
      return read(std::int16_t{}, whole);
    case MetadataType::u32:
      return read(std::uint32_t{}, whole);
    case MetadataType::i32:
      return read(std::int32_t{}, whole);
    case MetadataType::u64:
      return read(std::uint64_t{}, to_int64);
    case MetadataType::i64:
      return read(std::int64_t{}, whole);
    case MetadataType::f32:
      return read(float{}, real);
    case MetadataType::f64:
      return read(double{}, real);
    case MetadataType::boolean:
      return read(std::uint8_t{}, to_bool);
    default:
      fail(ErrorCode::unreadable, "unknown ", what, " type ", kind);
  }
}

GgufFile::Value read_array(Cursor& in) {
  const auto kind = in.number<std::uint32_t>("an array's type");
  const auto count = in.number<std::uint64_t>("an array's length");
  if (kind == static_cast<std::uint32_t>(MetadataType::array))
    fail(ErrorCode::unreadable, "an array of arrays, which no known key has");
  if (kind == static_cast<std::uint32_t>(MetadataType::string)) {
    std::vector<std::string> values(in.count_of(count, sizeof(std::uint64_t), "strings"));
    for (auto& value : values) value = in.string("a string of an array");
    return values;
  }
  return read_number(kind, "element", [&](auto zero, const auto& convert) -> GgufFile::Value {
    std::vector<decltype(convert(zero))> values(in.count_of(count, sizeof zero, "array elements"));
    for (auto&& value : values) value = convert(in.number<decltype(zero)>("an array"));
    return values;
  });
}

GgufFile::Value read_value(Cursor& in) {
  const auto kind = in.number<std::uint32_t>("a value's type");
  if (kind == static_cast<std::uint32_t>(MetadataType::string)) return in.string("a string");
  if (kind == static_cast<std::uint32_t>(MetadataType::array)) return read_array(in);
  return read_number(kind, "value", [&](auto zero, const auto& convert) -> GgufFile::Value {
    return convert(in.number<decltype(zero)>("a value"));
  });
}

/// Where a tensor says its bytes are, before that is checked.
struct Placement {
  std::uint64_t offset = 0;  // from the start of the data
  std::uint64_t bytes = 0;   // 0 if the type is unknown, so that its size cannot be told
};

Placement read_tensor(Cursor& in, StoredTensor& tensor) {
  const auto n_dimensions = in.number<std::uint32_t>("a tensor's shape");
  if (n_dimensions < 1 || n_dimensions > 4)
    fail(ErrorCode::unreadable, "found ", n_dimensions, " dimensions, expected 1 to 4");
  // The file lists the innermost dimension first.
  for (std::uint32_t i = 0; i < n_dimensions; ++i)
    tensor.shape.insert(tensor.shape.begin(),
                        to_int64(in.number<std::uint64_t>("a tensor's shape")));
  const auto count = value_count(tensor.shape);
  if (!count || *count == 0)
    fail(ErrorCode::unreadable, "impossible shape ", list_str(tensor.shape));

  const auto number = in.number<std::uint32_t>("a tensor's type");
  Placement placement;
  placement.offset = in.number<std::uint64_t>("a tensor's offset");
  const auto* type =
      std::find_if(std::begin(kFileTypes), std::end(kFileTypes),
                   [&](const FileType& candidate) { return candidate.number == number; });
  if (type == std::end(kFileTypes)) {
    tensor.foreign_type = str("number ", number);
    return placement;
  }
  if (type->ours)
    tensor.type = *type->ours;
  else
    tensor.foreign_type = type->name;
  const BlockShape block = type->ours ? block_shape(*type->ours) : type->block;
  if (tensor.shape.back() % block.values != 0)
    fail(ErrorCode::unreadable, "shape ", list_str(tensor.shape), ": rows of type ",
         type_name(tensor), " hold a multiple of ", block.values, " values");
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(*count / block.values, block.bytes, &bytes))
    fail(ErrorCode::unreadable, "impossible shape ", list_str(tensor.shape));
  placement.bytes = static_cast<std::uint64_t>(bytes);
  return placement;
}

void refuse_overlaps(const std::vector<StoredTensor>& tensors,
                     const std::vector<Placement>& placements) {
  std::vector<std::size_t> order(placements.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return placements[a].offset < placements[b].offset;
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const Placement& before = placements[order[i - 1]];
    if (before.offset + before.bytes > placements[order[i]].offset)
      fail(ErrorCode::unreadable, "the tensors ", quoted(tensors[order[i - 1]].name), " and ",
           quoted(tensors[order[i]].name), " overlap");
  }
}

std::uint32_t read_version(Cursor& in) {
  const auto magic = in.take(4, "its first four bytes");
  if (std::memcmp(magic.data(), "GGUF", 4) != 0)
    fail(ErrorCode::unreadable, "not a GGUF file: it does not begin with 'GGUF'");
  const auto version = in.number<std::uint32_t>("the version");
  if (version != 0 && (version & 0xffffu) == 0)
    fail(ErrorCode::unsupported, "a big-endian GGUF file; only little-endian ones are read");
  if (version != 2 && version != 3)
    fail(ErrorCode::unsupported, "GGUF version ", version, "; versions 2 and 3 are read");
  return version;
}

// In the order of the types that a Value may have.
constexpr const char* kTypeWords[] = {"a whole number",
                                      "a number",
                                      "a truth value",
                                      "a string",
                                      "an array of whole numbers",
                                      "an array of numbers",
                                      "an array of truth values",
                                      "an array of strings"};

}  // namespace

void GgufFile::read_header(std::span<const std::byte> bytes) {
  Cursor in(bytes);
  version_ = read_version(in);
  const auto n_tensors_stated = in.number<std::uint64_t>("the number of tensors");
  const auto n_keys_stated = in.number<std::uint64_t>("the number of keys");

  // A key takes at least its length, its type and one byte of value.
  const std::size_t n_keys = in.count_of(n_keys_stated, 13, "keys");
  for (std::size_t i = 0; i < n_keys; ++i) {
    std::string key = in.string("a key");
    if (key.empty() || key.size() > kMaxKeyBytes)
      fail(ErrorCode::unreadable, "key number ", i, " has ", key.size(), " bytes, expected 1 to ",
           kMaxKeyBytes);
    const std::string place = "key " + quoted(key);
    Value value = in_context(place, [&] { return read_value(in); });
    if (!metadata_.emplace(std::move(key), std::move(value)).second)
      fail(ErrorCode::unreadable, place, " is there twice");
  }

  const std::int64_t alignment = get<std::int64_t>("general.alignment").value_or(32);
  if (alignment < 1 || alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0)
    fail(ErrorCode::unreadable, "key 'general.alignment': found ", alignment,
         ", expected a power of two up to ", kMaxAlignment);

  // A tensor takes at least a name's length, dimensions, one size, a type and an offset.
  const std::size_t n_tensors = in.count_of(n_tensors_stated, 32, "tensors");
  std::vector<Placement> placements(n_tensors);
  tensors_.resize(n_tensors);
  for (std::size_t i = 0; i < n_tensors; ++i) {
    StoredTensor& tensor = tensors_[i];
    tensor.name = in.string("a tensor's name");
    const std::string place = "tensor " + quoted(tensor.name);
    in_context(place, [&] { placements[i] = read_tensor(in, tensor); });
    if (!index_.emplace(tensor.name, i).second)
      fail(ErrorCode::unreadable, place, " is there twice");
  }

  const std::uint64_t step = static_cast<std::uint64_t>(alignment);
  const std::uint64_t data_start =
      std::min<std::uint64_t>((in.position() + step - 1) / step * step, bytes.size());
  const std::uint64_t data_bytes = bytes.size() - data_start;
  for (std::size_t i = 0; i < n_tensors; ++i) {
    const Placement& at = placements[i];
    const std::string name = quoted(tensors_[i].name);
    if (at.offset % step != 0)
      fail(ErrorCode::unreadable, "tensor ", name, ": offset ", at.offset, " is no multiple of ",
           alignment);
    if (at.offset > data_bytes || at.bytes > data_bytes - at.offset)
      fail(ErrorCode::unreadable, "tensor ", name, ": ", at.bytes, " bytes at offset ", at.offset,
           " do not fit in the ", data_bytes, " bytes of data in the file");
    tensors_[i].bytes = bytes.subspan(data_start + at.offset, at.bytes);
  }
  refuse_overlaps(tensors_, placements);
}

GgufFile GgufFile::parse(std::span<const std::byte> bytes) {
  GgufFile file;
  file.read_header(bytes);
  return file;
}

GgufFile GgufFile::open(const std::filesystem::path& path) {
  MappedFile mapped = MappedFile::open(path);
  return in_context(quoted(path.string(), 400), [&] {
    GgufFile file;
    file.read_header(mapped.bytes());
    mapped.require_intact();
    file.file_.emplace(std::move(mapped));
    return file;
  });
}

void GgufFile::fail_type(std::string_view key, const Value& expected) {
  fail(ErrorCode::unreadable, "key ", quoted(key), ": expected ", kTypeWords[expected.index()]);
}

void GgufFile::fail_missing(std::string_view key) {
  fail(ErrorCode::unreadable, "the key ", quoted(key), " is missing");
}

const StoredTensor* GgufFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) return nullptr;
  const StoredTensor& tensor = tensors_[found->second];
  require_decodable(tensor);
  return &tensor;
}

}  // namespace kvatlas::model
