// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "analyzer/model/json_text.hpp"
#include "calibrate/document_impl.hpp"
#include "kernels/base/error.hpp"

namespace kvatlas::calibrate {
namespace {

/// A file of this process, gone again unless it is renamed.
class Temporary {
 public:
  explicit Temporary(const std::filesystem::path& path)
      : path_(path.string() + str(".", ::getpid(), ".tmp")),
        descriptor_(
            ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) fail_writing();
  }
  ~Temporary() {
    ::close(descriptor_);
    if (!renamed_) ::unlink(path_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t done = ::write(descriptor_, text.data(), text.size());
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) fail_writing();
      text.remove_prefix(static_cast<std::size_t>(done));
    }
    if (::fsync(descriptor_) != 0) fail_writing();
  }

  void rename_to(const std::filesystem::path& path) {
    if (::rename(path_.c_str(), path.c_str()) != 0) fail_writing();
    renamed_ = true;
  }

 private:
  [[noreturn]] void fail_writing() const {
    fail(ErrorCode::resource, "writing ", quoted(path_, 400), " failed: ", std::strerror(errno));
  }

  std::string path_;
  int descriptor_ = -1;
  bool renamed_ = false;
};

}  // namespace

Document read_document(const std::filesystem::path& path) {
  const auto text = model::read_text_file(path, kLargestDocument);
  return in_context(printable(path.string(), 400), [&] { return parse_document(text); });
}

void write_document(const Document& document, const std::filesystem::path& path, bool force) {
  write_whole(document_text(document), path, force);
}

void write_whole(std::string_view text, const std::filesystem::path& path, bool force) {
  if (!force && std::filesystem::exists(path))
    fail(ErrorCode::usage, quoted(path.string(), 400), " exists (--force replaces it)");
  Temporary file(path);
  file.write(text);
  file.rename_to(path);
}

}  // namespace kvatlas::calibrate
