// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/json_text.hpp"

#include "analyzer/model/mapped_file.hpp"
#include "kernels/base/error.hpp"

namespace kvatlas::model {

std::string read_text_file(const std::filesystem::path& path, std::size_t most_bytes) {
  const MappedFile file = MappedFile::open(path);
  const auto bytes = file.bytes();
  if (bytes.size() > most_bytes)
    fail(ErrorCode::unreadable, quoted(path.string(), 400), " has ", bytes.size(),
         " bytes, expected at most ", most_bytes);
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  file.require_intact();
  return text;
}

nlohmann::json parse_json(std::string_view text, int most_depth) {
  const auto check = [&](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
    if (depth > most_depth)
      fail(ErrorCode::unreadable, "JSON nested deeper than ", most_depth, " levels");
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), check);
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::unreadable, "not valid JSON: ", json_complaint(error));
  }
}

std::string json_complaint(const nlohmann::json::exception& error) {
  const std::string_view text = error.what();
  const auto bracket = text.find("] ");
  return printable(bracket == text.npos ? text : text.substr(bracket + 2), 300);
}

}  // namespace kvatlas::model
