// SPDX-License-Identifier: Apache-2.0
#include "tests/support/model_bytes.hpp"

#include <cstdlib>
#include <fstream>
#include <numeric>
#include <stdexcept>

#include "base/str.hpp"

namespace kvatlas::testing_support {

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "kvatlas-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make " + pattern);
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path TemporaryFolder::write(const std::string& name,
                                             std::string_view bytes) const {
  std::filesystem::path path = path_ / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
  return path;
}

std::string bytes_of_floats(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string gguf_string(std::string_view text) {
  return bytes_of<std::uint64_t>(text.size()) + std::string(text);
}

GgufBytes& GgufBytes::key(const std::string& name, std::uint32_t type,
                          const std::string& value_bytes) {
  keys_ += gguf_string(name) + bytes_of(type) + value_bytes;
  ++n_keys_;
  return *this;
}

GgufBytes& GgufBytes::number(const std::string& name, std::uint32_t value) {
  return key(name, kGgufU32, bytes_of(value));
}

GgufBytes& GgufBytes::number(const std::string& name, float value) {
  return key(name, kGgufF32, bytes_of(value));
}

GgufBytes& GgufBytes::text(const std::string& name, const std::string& value) {
  return key(name, kGgufString, gguf_string(value));
}

GgufBytes& GgufBytes::tensor(const std::string& name, const std::vector<std::uint64_t>& shape,
                             std::uint32_t type, const std::string& bytes,
                             std::optional<std::uint64_t> offset) {
  data_.resize((data_.size() + alignment - 1) / alignment * alignment);
  entries_ += gguf_string(name) + bytes_of(static_cast<std::uint32_t>(shape.size()));
  for (auto size = shape.rbegin(); size != shape.rend(); ++size) entries_ += bytes_of(*size);
  entries_ += bytes_of(type) + bytes_of(offset.value_or(data_.size()));
  data_ += bytes;
  ++n_tensors_;
  return *this;
}

GgufBytes& GgufBytes::floats(const std::string& name, const std::vector<std::uint64_t>& shape,
                             const std::vector<float>& values) {
  return tensor(name, shape, 0, bytes_of_floats(values));
}

std::string GgufBytes::header() const {
  return "GGUF" + bytes_of(version) + bytes_of(stated_tensors.value_or(n_tensors_)) +
         bytes_of(stated_keys.value_or(n_keys_)) + keys_ + entries_;
}

std::string GgufBytes::build() const {
  std::string bytes = header();
  bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
  return bytes + data_;
}

std::string safetensors_bytes(const std::string& header, const std::string& data) {
  return bytes_of<std::uint64_t>(header.size()) + header + data;
}

std::string safetensors_of(const std::map<std::string, FloatTensor>& tensors) {
  std::string header = "{", data;
  for (const auto& [name, tensor] : tensors) {
    if (header.size() > 1) header += ',';
    const auto begin = data.size();
    if (tensor.whole)
      for (const float value : tensor.values) data += bytes_of(static_cast<std::int32_t>(value));
    else
      data += bytes_of_floats(tensor.values);
    header += str('"', name, R"(":{"dtype":")", tensor.whole ? "I32" : "F32", R"(","shape":)",
                  list_str(tensor.shape), R"(,"data_offsets":[)", begin, ',', data.size(), "]}");
  }
  return safetensors_bytes(header + "}", data);
}

FloatTensor counting(const std::vector<std::uint64_t>& shape, float first) {
  FloatTensor tensor{shape, {}, false};
  std::uint64_t count = 1;
  for (std::uint64_t size : shape) count *= size;
  tensor.values.resize(count);
  std::iota(tensor.values.begin(), tensor.values.end(), first);
  return tensor;
}

}  // namespace kvatlas::testing_support
