// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <functional>

#include "analyzer/profile/lookup3_impl.hpp"
#include "analyzer/profile/stored_object_impl.hpp"

namespace kvatlas::profile {
namespace {

constexpr std::uint64_t kMostHeader = 4 << 20;  // of an object: 64 attributes of 64 KiB
constexpr std::size_t kMostMessages = 4096;
constexpr unsigned kWithOrder = 4, kWithPhases = 0x10, kWithTimes = 0x20;

struct HeaderStart {
  bool with_order;         // each message says when it was made
  std::uint64_t begin;     // of the messages
  std::uint64_t messages;  // their bytes
};

HeaderStart header_start(const StoredFile& file, std::uint64_t address) {
  constexpr std::uint64_t kLongest = 34;
  file.require_inside(address, 1);
  const Bytes start =
      file.read(address, std::min(kLongest, static_cast<std::uint64_t>(file.size()) - address));
  if (start[0] == std::byte{1})
    fail(ErrorCode::unreadable, "an object at byte ", address,
         " is in HDF5's older format, which has no checksums (h5py: libver='latest')");
  Fields fields(start);
  if (text_of(fields.take(4)) != "OHDR")
    fail(ErrorCode::unreadable, "damaged: there is no object at byte ", address);
  fields.expect_version(2, "object header");
  const auto flags = fields.number(1);
  fields.skip((flags & kWithTimes) != 0 ? 16 : 0);
  fields.skip((flags & kWithPhases) != 0 ? 4 : 0);
  const auto messages = fields.number(std::uint64_t{1} << (flags & 3));
  return {(flags & kWithOrder) != 0, start.size() - fields.left().size(), messages};
}

}  // namespace

StoredObject::StoredObject(const StoredFile& file, std::uint64_t address) : file_(&file) {
  const HeaderStart start = header_start(file, address);
  std::uint64_t total = start.messages;
  const auto require_small = [&] {
    if (total > kMostHeader)
      fail(ErrorCode::unreadable, "an object at byte ", address, " has a header of ", total,
           " bytes, expected ", kMostHeader, " at most");
  };
  require_small();
  add_messages(
      file.block(address, start.begin + start.messages + StoredFile::kChecksumBytes, "OHDR"),
      start.begin, start.with_order);
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    if (messages_[i].kind != continuation) continue;
    Fields fields(messages_[i].body);
    const auto where = fields.address(), bytes = fields.number(8);
    total += std::min(bytes, kMostHeader + 1);
    require_small();
    if (bytes < StoredFile::kSignatureBytes + StoredFile::kChecksumBytes)
      fail(ErrorCode::unreadable, "damaged: an object's header goes on with ", bytes, " bytes");
    add_messages(file.block(where, bytes, "OCHK"), StoredFile::kSignatureBytes, start.with_order);
  }
}

void StoredObject::add_messages(const Block& block, std::uint64_t begin, bool with_order) {
  const std::size_t head = with_order ? 6 : 4;
  blocks_.push_back(block);
  Fields fields(Span(*block).first(block->size() - StoredFile::kChecksumBytes).subspan(begin));
  while (fields.left().size() >= head) {  // fewer bytes are a gap
    const auto kind = static_cast<unsigned>(fields.number(1));
    const auto bytes = fields.number(2), flags = fields.number(1);
    fields.skip(head - 4);
    const Span body = fields.take(bytes);
    if (kind == nothing) continue;
    constexpr unsigned kShared = 2;
    messages_.push_back({kind, (flags & kShared) != 0, body});
    if (messages_.size() > kMostMessages)
      fail(ErrorCode::unreadable, "damaged: an object's header has more than ", kMostMessages,
           " parts");
  }
}

const StoredObject::Message* StoredObject::find(Kind kind) const {
  const auto found =
      std::ranges::find_if(messages_, [&](const Message& message) { return message.kind == kind; });
  return found == messages_.end() ? nullptr : &*found;
}

Span StoredObject::body(Kind kind, std::string_view what) const {
  const Message* message = find(kind);
  if (message == nullptr) fail(ErrorCode::unreadable, "damaged: it has no ", what);
  if (message->shared) fail(ErrorCode::unreadable, "its ", what, " is kept elsewhere in the file");
  return message->body;
}

StoredSpace parse_space(Span body) {
  constexpr std::uint64_t kMostAxes = 32, kHasMost = 1, kSimple = 1, kNone = 2;
  Fields fields(body);
  const auto version = fields.number(1), rank = fields.number(1), flags = fields.number(1);
  if (version != 1 && version != 2)
    fail(ErrorCode::unreadable, "its sizes are of version ", version, ", expected 1 or 2");
  const auto type = version == 2 ? fields.number(1) : std::uint64_t{rank > 0};
  fields.skip(version == 1 ? 5 : 0);
  if (rank > kMostAxes) fail(ErrorCode::unreadable, "damaged: it has ", rank, " axes");
  StoredSpace space;
  space.simple = type == kSimple;
  for (std::uint64_t i = 0; i < rank; ++i) space.sizes.push_back(as_size(fields.number(8)));
  space.most = space.sizes;
  if ((flags & kHasMost) != 0)
    for (auto& most : space.most) most = as_size(fields.number(8));
  if (type == kNone) space.count = 0;
  if (space.simple) space.count = element_count(space.sizes);
  return space;
}

namespace {

/// A datatype but for its version: class, three bytes of bits, size, and what the class has.
using TypeText = std::string;

std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

TypeText integer_type(std::uint64_t bytes, bool with_sign) {
  constexpr unsigned kInteger = 0, kSign = 8;
  return little_endian(kInteger, 1) + little_endian(with_sign ? kSign : 0, 3) +
         little_endian(bytes, 4) + little_endian(0, 2) + little_endian(8 * bytes, 2);
}

/// IEEE 754: the mantissa from bit 0, the exponent behind it, then the sign.
TypeText float_type(std::uint64_t bytes, std::uint64_t mantissa_bits) {
  constexpr unsigned kFloat = 1, kHiddenOne = 0x20;
  const std::uint64_t bits = 8 * bytes, exponent_bits = bits - 1 - mantissa_bits;
  return little_endian(kFloat, 1) + little_endian(kHiddenOne | (bits - 1) << 8, 3) +
         little_endian(bytes, 4) + little_endian(0, 2) + little_endian(bits, 2) +
         little_endian(mantissa_bits, 1) + little_endian(exponent_bits, 1) + little_endian(0, 1) +
         little_endian(mantissa_bits, 1) +
         little_endian((std::uint64_t{1} << (exponent_bits - 1)) - 1, 4);
}

bool is_text_of_type(Span datatype, const TypeText& expected) {
  if (datatype.size() < expected.size()) return false;
  std::string found(text_of(datatype.first(expected.size())));
  constexpr unsigned kClass = 0x0f;
  found[0] = static_cast<char>(static_cast<unsigned char>(found[0]) & kClass);
  return found == expected;
}

}  // namespace

bool is_type(Span datatype, Type type) {
  switch (type) {
    case Type::f32:
      return is_text_of_type(datatype, float_type(4, 23));
    case Type::f16:
      return is_text_of_type(datatype, float_type(2, 10));
    case Type::i32:
      return is_text_of_type(datatype, integer_type(4, true));
    case Type::i64:
      return is_text_of_type(datatype, integer_type(8, true));
    default:
      return is_text_of_type(datatype, integer_type(1, false));
  }
}

bool is_float64(Span datatype) { return is_text_of_type(datatype, float_type(8, 52)); }

std::int64_t bytes_of_type(Span datatype) {
  Fields fields(datatype);
  fields.skip(4);
  return static_cast<std::int64_t>(fields.number(4));
}

bool is_string_of_fixed_length(Span datatype) {
  constexpr unsigned kString = 3;
  return (Fields(datatype).number(1) & 0x0f) == kString;
}

namespace {

/// The message that a heap holds of this name, found by the name's checksum.
std::optional<HeldBytes> find_in_heap(const StoredObject& object, std::uint64_t heap_address,
                                      std::uint64_t tree_address, StoredTree::Type type,
                                      std::string_view name,
                                      const std::function<bool(Span message)>& is_it) {
  if (heap_address == kNowhere) return std::nullopt;
  const StoredHeap heap(object.file(), heap_address);
  const std::uint32_t wanted = lookup3(std::as_bytes(std::span(name)));
  // A link's record has the checksum before the identifier; an attribute's, at its end.
  const auto checksum_of = [&](Span record) {
    if (type == StoredTree::attribute_names)
      record = record.subspan(record.size() - std::min<std::size_t>(record.size(), 4));
    return Fields(record).number(4);
  };
  std::optional<HeldBytes> found;
  StoredTree(object.file(), tree_address, type)
      .find(
          [&](Span record) {
            const auto checksum = checksum_of(record);
            return checksum < wanted ? -1 : checksum > wanted ? 1 : 0;
          },
          [&](Span record) {
            if (type == StoredTree::link_names) record = record.subspan(4);
            HeldBytes message = heap.object(record);
            if (is_it(message.bytes)) found = std::move(message);
            return found.has_value();
          });
  return found;
}

struct StoredLink {
  std::string_view name;
  std::uint64_t type;     // 0: hard
  std::uint64_t address;  // of a hard link
};

StoredLink parse_link(Span body) {
  constexpr unsigned kWithOrderOfLink = 4, kWithType = 8, kWithCharacters = 0x10;
  Fields fields(body);
  fields.expect_version(1, "link");
  const auto flags = fields.number(1);
  StoredLink link{};
  link.type = (flags & kWithType) != 0 ? fields.number(1) : 0;
  fields.skip((flags & kWithOrderOfLink) != 0 ? 8 : 0);
  fields.skip((flags & kWithCharacters) != 0 ? 1 : 0);
  link.name = text_of(fields.take(fields.number(std::uint64_t{1} << (flags & 3))));
  link.address = link.type == 0 ? fields.address() : kNowhere;
  return link;
}

/// The address of a group's member; nothing if there is none of the name.
std::optional<std::uint64_t> find_member(const StoredObject& group, const std::string& name) {
  std::optional<StoredLink> found;
  for (const auto& message : group.messages())
    if (message.kind == StoredObject::link && !message.shared)
      if (const StoredLink link = parse_link(message.body); link.name == name) found = link;
  HeldBytes held;
  if (!found) {
    Fields fields(group.body(StoredObject::link_info, "list of links"));
    fields.expect_version(0, "list of links");
    fields.skip((fields.number(1) & 1) != 0 ? 8 : 0);
    const auto heap = fields.address(), tree = fields.address();
    auto message = find_in_heap(group, heap, tree, StoredTree::link_names, name,
                                [&](Span body) { return parse_link(body).name == name; });
    if (!message) return std::nullopt;
    held = std::move(*message);
    found = parse_link(held.bytes);
  }
  constexpr unsigned kSoft = 1, kExternal = 64;
  if (found->type != 0)
    fail(ErrorCode::unreadable, quoted(name), " is ",
         found->type == kSoft       ? "a soft link"
         : found->type == kExternal ? "a link to another file"
                                    : "a link of an unknown kind",
         ", which a profile does not have");
  return found->address;
}

StoredObject open_at(const StoredObject& group, std::uint64_t address, const std::string& name) {
  StoredObject object =
      in_context(quoted(name), [&] { return StoredObject(group.file(), address); });
  if (object.find(StoredObject::symbol_table) != nullptr)
    fail(ErrorCode::unreadable, quoted(name),
         " is a group in HDF5's older format (h5py: libver='latest')");
  return object;
}

/// Opens all groups on the way, and calls last(group, name) with the last of them and the last part
/// of the path. Stops, and returns false, where `on_absence` returns instead of throwing.
template <class Last, class Absence>
bool walk_to(const StoredObject& place, const std::string& path, const Last& last,
             const Absence& on_absence) {
  StoredObject group = place;
  std::size_t start = 0;
  for (std::size_t slash; (slash = path.find('/', start)) != path.npos; start = slash + 1) {
    const std::string name = path.substr(start, slash - start);
    const auto address = find_member(group, name);
    if (address) group = open_at(group, *address, name);
    if (!address || !group.is_group()) {
      on_absence(name, address.has_value());
      return false;
    }
  }
  return last(group, path.substr(start));
}

StoredObject open_object(const StoredObject& place, const std::string& path,
                         bool (StoredObject::*is_expected)() const, const char* expected) {
  StoredObject object;
  const auto fail_absent = [&](const std::string& name, bool is_there) {
    if (is_there) fail(ErrorCode::unreadable, quoted(name), " is not a group");
    fail(ErrorCode::unreadable, quoted(path), " is missing");
  };
  walk_to(
      place, path,
      [&](const StoredObject& group, const std::string& name) {
        const auto address = find_member(group, name);
        if (!address) fail(ErrorCode::unreadable, quoted(path), " is missing");
        object = open_at(group, *address, name);
        if (!(object.*is_expected)())
          fail(ErrorCode::unreadable, quoted(name), " is not a ", expected);
        return true;
      },
      fail_absent);
  return object;
}

}  // namespace

bool has_object(const StoredObject& place, const std::string& path) {
  return walk_to(
      place, path,
      [](const StoredObject& group, const std::string& name) {
        return find_member(group, name).has_value();
      },
      [](const std::string&, bool) {});
}

StoredObject open_group(const StoredObject& place, const std::string& path) {
  return open_object(place, path, &StoredObject::is_group, "group");
}

StoredObject open_dataset(const StoredObject& place, const std::string& path) {
  return open_object(place, path, &StoredObject::is_dataset, "dataset");
}

namespace {

/// An attribute that was found and measured, before anything is allocated for its value.
struct StoredAttribute {
  std::string_view name;
  bool kept_elsewhere = false;  // its type or its sizes
  Span type, space, value;
};

StoredAttribute parse_attribute(Span body) {
  Fields fields(body);
  const auto version = fields.number(1), flags = fields.number(1);
  if (version < 1 || version > 3)
    fail(ErrorCode::unreadable, "an attribute is of version ", version, ", expected 1 to 3");
  const auto name_bytes = fields.number(2), type_bytes = fields.number(2),
             space_bytes = fields.number(2);
  fields.skip(version == 3 ? 1 : 0);
  const auto padded = [&](std::uint64_t bytes) {
    const Span part = fields.take(bytes);
    fields.skip(version == 1 ? (8 - bytes % 8) % 8 : 0);
    return part;
  };
  StoredAttribute attribute;
  attribute.name = text_of(padded(name_bytes));
  attribute.name = attribute.name.substr(0, attribute.name.find('\0'));
  attribute.kept_elsewhere = version > 1 && (flags & 3) != 0;
  attribute.type = padded(type_bytes);
  attribute.space = padded(space_bytes);
  attribute.value = fields.left();
  return attribute;
}

/// The message of an attribute; nothing if there is none of the name.
std::optional<HeldBytes> find_attribute(const StoredObject& object, std::string_view name) {
  for (const auto& message : object.messages())
    if (message.kind == StoredObject::attribute && !message.shared &&
        parse_attribute(message.body).name == name)
      return HeldBytes{nullptr, message.body};
  if (object.find(StoredObject::attribute_info) == nullptr) return std::nullopt;
  Fields fields(object.body(StoredObject::attribute_info, "list of attributes"));
  fields.expect_version(0, "list of attributes");
  fields.skip((fields.number(1) & 1) != 0 ? 2 : 0);
  const auto heap = fields.address(), tree = fields.address();
  return find_in_heap(object, heap, tree, StoredTree::attribute_names, name,
                      [&](Span body) { return parse_attribute(body).name == name; });
}

struct FoundAttribute {
  HeldBytes held;
  Span type, value;  // as many bytes as the elements take
  std::int64_t count, element_bytes;
};

FoundAttribute find(const StoredObject& object, const char* name, bool one,
                    std::int64_t most_bytes) {
  const std::string what = str("attribute '", name, "'");
  auto held = in_context(what, [&] { return find_attribute(object, name); });
  if (!held) fail(ErrorCode::unreadable, what, " is missing");
  StoredSpace space;
  const StoredAttribute attribute = in_context(what, [&] {
    StoredAttribute parsed = parse_attribute(held->bytes);
    if (parsed.kept_elsewhere)
      fail(ErrorCode::unreadable, "its type or its sizes are kept elsewhere in the file");
    space = parse_space(parsed.space);
    return parsed;
  });
  const std::int64_t element_bytes = bytes_of_type(attribute.type);
  if (space.sizes.size() != (one ? 0 : 1) || (one && space.count != 1))
    fail(ErrorCode::unreadable, what, " has ", space.sizes.size(), " dimensions and ", space.count,
         " elements, expected ", one ? "a single value" : "a list");
  if (element_bytes == 0 || space.count > most_bytes / element_bytes)
    fail(ErrorCode::unreadable, what, " has ", space.count, " elements of ", element_bytes,
         " bytes, more than the ", most_bytes, " bytes that it may have");
  const Span value = in_context(what, [&] {
    return Fields(attribute.value).take(static_cast<std::uint64_t>(space.count * element_bytes));
  });
  return {std::move(*held), attribute.type, value, space.count, element_bytes};
}

void require_type(const char* name, bool right, const char* expected) {
  if (!right) fail(ErrorCode::unreadable, "attribute '", name, "' is not of type ", expected);
}

std::vector<std::string> strings(const StoredObject& object, const char* name, bool one,
                                 std::int64_t most_bytes) {
  const FoundAttribute found = find(object, name, one, most_bytes);
  if (!is_string_of_fixed_length(found.type))
    fail(ErrorCode::unreadable, "attribute '", name, "' is not a string of fixed length");
  std::vector<std::string> values;
  Fields fields(found.value);
  for (std::int64_t i = 0; i < found.count; ++i) {
    std::string value(text_of(fields.take(static_cast<std::uint64_t>(found.element_bytes))));
    value.erase(value.find_last_not_of('\0') + 1);
    values.push_back(std::move(value));
  }
  return values;
}

constexpr std::int64_t kNumberBytes = 8;

}  // namespace

std::string read_string(const StoredObject& object, const char* name, std::int64_t most_bytes) {
  return strings(object, name, true, most_bytes).front();
}

std::vector<std::string> read_strings(const StoredObject& object, const char* name,
                                      std::int64_t most_bytes) {
  return strings(object, name, false, most_bytes);
}

std::int64_t read_integer(const StoredObject& object, const char* name) {
  const FoundAttribute found = find(object, name, true, kNumberBytes);
  require_type(name, is_type(found.type, Type::i64), "int64");
  return static_cast<std::int64_t>(Fields(found.value).number(8));
}

Sizes read_integers(const StoredObject& object, const char* name, std::int64_t most_bytes) {
  const FoundAttribute found = find(object, name, false, most_bytes);
  require_type(name, is_type(found.type, Type::i64), "int64");
  Sizes values;
  Fields fields(found.value);
  for (std::int64_t i = 0; i < found.count; ++i)
    values.push_back(static_cast<std::int64_t>(fields.number(8)));
  return values;
}

double read_double(const StoredObject& object, const char* name) {
  const FoundAttribute found = find(object, name, true, kNumberBytes);
  require_type(name, is_float64(found.type), "float64");
  return std::bit_cast<double>(Fields(found.value).number(8));
}

bool has_attribute(const StoredObject& object, const char* name) {
  return in_context(str("attribute '", name, "'"),
                    [&] { return find_attribute(object, name).has_value(); });
}

}  // namespace kvatlas::profile
