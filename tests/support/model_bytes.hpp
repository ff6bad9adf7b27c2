// SPDX-License-Identifier: Apache-2.0
// Writers of small model files, right or damaged, for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/error_of.hpp"

namespace kvatlas::testing_support {

/// A folder that is gone with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Writes a file, making its folders, and returns its path.
  std::filesystem::path write(const std::string& name, std::string_view bytes) const;

 private:
  std::filesystem::path path_;
};

/// The bytes of a number as they lie in memory.
template <class T>
std::string bytes_of(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
std::string bytes_of_floats(const std::vector<float>& values);

/// Value types of GGUF, by their numbers in the file.
enum : std::uint32_t {
  kGgufU8 = 0,
  kGgufU32 = 4,
  kGgufI32 = 5,
  kGgufF32 = 6,
  kGgufBool = 7,
  kGgufString = 8,
  kGgufArray = 9,
  kGgufU64 = 10,
};

/// A GGUF file put together piece by piece. Whatever is wrong stays wrong.
class GgufBytes {
 public:
  std::uint32_t version = 3;
  std::optional<std::uint64_t> stated_tensors, stated_keys;  // counts to write instead of the true
  std::uint64_t alignment = 32;  // of the data; the key is not written by itself

  GgufBytes& key(const std::string& name, std::uint32_t type, const std::string& value_bytes);
  GgufBytes& number(const std::string& name, std::uint32_t value);
  GgufBytes& number(const std::string& name, float value);
  GgufBytes& text(const std::string& name, const std::string& value);
  /// `shape` row-major, as StoredTensor has it. `offset`: instead of the next free place.
  GgufBytes& tensor(const std::string& name, const std::vector<std::uint64_t>& shape,
                    std::uint32_t type, const std::string& bytes,
                    std::optional<std::uint64_t> offset = {});
  GgufBytes& floats(const std::string& name, const std::vector<std::uint64_t>& shape,
                    const std::vector<float>& values);

  std::string header() const;  // up to the end of the tensors' entries
  std::string build() const;

 private:
  std::uint64_t n_keys_ = 0, n_tensors_ = 0;
  std::string keys_, entries_, data_;
};

/// "length, bytes", as GGUF writes a string.
std::string gguf_string(std::string_view text);

/// A safetensors file of this header and data.
std::string safetensors_bytes(const std::string& header, const std::string& data);

/// A safetensors file of tensors of numbers of four bytes, by default float32.
struct FloatTensor {
  std::vector<std::uint64_t> shape;
  std::vector<float> values;
  bool whole = false;  // int32
};
std::string safetensors_of(const std::map<std::string, FloatTensor>& tensors);

/// A tensor of counting values: first, first + 1, …
FloatTensor counting(const std::vector<std::uint64_t>& shape, float first = 0);

}  // namespace kvatlas::testing_support
