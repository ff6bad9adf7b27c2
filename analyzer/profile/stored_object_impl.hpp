// SPDX-License-Identifier: Apache-2.0
// Groups and datasets of an HDF5 file that is read: their links, attributes and descriptions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/profile/stored_index_impl.hpp"

namespace kvatlas::profile {

/// A group or a dataset: the messages that its header is made of.
class StoredObject {
 public:
  /// Kinds of messages, as HDF5 numbers them.
  enum Kind : unsigned {
    nothing = 0,
    dataspace = 1,
    link_info = 2,
    datatype = 3,
    link = 6,
    external_files = 7,
    layout = 8,
    filters = 11,
    attribute = 12,
    continuation = 16,
    symbol_table = 17,
    attribute_info = 21
  };
  struct Message {
    unsigned kind;
    bool shared;  // its body says where it lies
    Span body;
  };

  StoredObject() = default;
  StoredObject(const StoredFile& file, std::uint64_t address);

  bool is_group() const { return find(link_info) != nullptr; }
  bool is_dataset() const { return find(layout) != nullptr; }
  const StoredFile& file() const { return *file_; }
  const std::vector<Message>& messages() const { return messages_; }
  /// The first message of a kind, or nullptr.
  const Message* find(Kind kind) const;
  /// Its body. Error(unreadable) if it is absent, or lies elsewhere.
  Span body(Kind kind, std::string_view what) const;

 private:
  void add_messages(const Block& block, std::uint64_t begin, bool with_order);

  const StoredFile* file_ = nullptr;
  std::vector<Block> blocks_;
  std::vector<Message> messages_;
};

/// The sizes of a dataset or an attribute.
struct StoredSpace {
  bool simple = false;     // else a single value, or none
  std::int64_t count = 1;  // of elements; -1 beyond what can be
  Sizes sizes, most;
};
StoredSpace parse_space(Span body);

/// How HDF5 describes the types of a profile's elements, in all versions of its description but for
/// the number of the version.
bool is_type(Span datatype, Type type);
bool is_float64(Span datatype);
/// The bytes of an element of any type.
std::int64_t bytes_of_type(Span datatype);
bool is_string_of_fixed_length(Span datatype);

/// Whether there is an object at `path` ("a/b/c") below `place`. Error(unreadable) if a link on the
/// way is not a hard link, because other links may lead out of the file.
bool has_object(const StoredObject& place, const std::string& path);
/// The group or dataset at `path`. Error(unreadable) if it is absent or something else.
StoredObject open_group(const StoredObject& place, const std::string& path);
StoredObject open_dataset(const StoredObject& place, const std::string& path);

/// Error(unreadable) names the attribute if it is absent, of another type, or larger than
/// `most_bytes`.
std::string read_string(const StoredObject& object, const char* name, std::int64_t most_bytes);
std::vector<std::string> read_strings(const StoredObject& object, const char* name,
                                      std::int64_t most_bytes);
std::int64_t read_integer(const StoredObject& object, const char* name);
Sizes read_integers(const StoredObject& object, const char* name, std::int64_t most_bytes);
double read_double(const StoredObject& object, const char* name);
bool has_attribute(const StoredObject& object, const char* name);

}  // namespace kvatlas::profile
