// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/whole_file.hpp"
#include "calibrate/policy/document_impl.hpp"
#include "calibrate/policy/policy_files.hpp"

namespace kvatlas::calibrate {

namespace fs = std::filesystem;

Document read_document(const fs::path& path) {
  const auto text = read_text_file(path, kLargestDocument);
  return in_context(quoted(path.string(), 400), [&] {
    if (text.starts_with("\x89HDF"))
      fail(ErrorCode::unreadable,
           "a profile, and no policy document: 'kvatlas calibrate' makes one from it");
    return parse_document(text);
  });
}

fs::path trials_beside(const fs::path& output) {
  return fs::path(output).replace_extension(".trials.jsonl");
}

void write_document(const Document& document, const fs::path& path, bool force) {
  write_whole(document_text(document), path, force);
}

}  // namespace kvatlas::calibrate
