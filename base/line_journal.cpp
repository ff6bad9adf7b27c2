// SPDX-License-Identifier: Apache-2.0
#include "base/line_journal.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

#include "base/error.hpp"
#include "base/json_text.hpp"

namespace kvatlas {
namespace {

using nlohmann::json;

constexpr std::size_t kLargestJournal = std::size_t{1} << 30;

[[noreturn]] void cannot_write(const std::filesystem::path& path) {
  fail(ErrorCode::resource, "cannot write ", printable(path.string(), 400), ": ",
       std::strerror(errno));
}

}  // namespace

LineJournal::LineJournal(std::filesystem::path path, const Kind& kind, const json& settings,
                         Open how, const std::function<void(const json&)>& take)
    : path_(std::move(path)) {
  const std::string name = printable(path_.string(), 400);
  file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file_ < 0) cannot_write(path_);
  if (flock(file_, LOCK_EX | LOCK_NB) != 0) {
    close(std::exchange(file_, -1));
    fail(ErrorCode::usage, name,
         " is being written by another process: wait for it, or choose "
         "another output");
  }
  try {
    const bool empty = lseek(file_, 0, SEEK_END) == 0;
    if (how == Open::fresh && !empty)
      fail(ErrorCode::usage, name, " holds the ", kind.lines,
           " of an earlier run: --resume goes on with them, ", kind.anew);
    std::size_t whole = 0;
    if (how == Open::resume && !empty)
      whole = in_context(name, [&] { return read(kind, settings, take); });
    if (ftruncate(file_, static_cast<off_t>(whole)) != 0 || lseek(file_, 0, SEEK_END) < 0)
      cannot_write(path_);
    if (whole == 0) append(json{{"schema", kind.schema}, {"settings", settings}}.dump() + '\n');
  } catch (...) {
    close(file_);
    throw;
  }
}

LineJournal::~LineJournal() { close(file_); }

std::size_t LineJournal::read(const Kind& kind, const json& settings,
                              const std::function<void(const json&)>& take) const {
  const std::string text = read_text_file(path_, kLargestJournal);
  std::size_t line = 0, whole = 0;  // bytes of lines that are complete
  for (std::size_t end = 0; (end = text.find('\n', whole)) != std::string::npos; whole = end + 1) {
    ++line;
    const auto parsed = in_context(str("line ", line), [&] {
      return parse_json(std::string_view(text).substr(whole, end - whole), 8);
    });
    if (line > 1) {
      in_context(str("line ", line), [&] { take(parsed); });
      continue;
    }
    if (!parsed.is_object() || parsed.value("schema", json()) != kind.schema ||
        !parsed.contains("settings") || !parsed.at("settings").is_object())
      fail(ErrorCode::unreadable, "no journal of ", kind.lines);
    for (const auto& [key, value] : settings.items())
      if (parsed.at("settings").value(key, json()) != value)
        fail(ErrorCode::usage, "its ", kind.lines, " were run with ", key, " ",
             printable(parsed.at("settings").value(key, json()).dump(), 200), ", and now it is ",
             printable(value.dump(), 200), ": ", kind.anew);
  }
  return whole;
}

void LineJournal::append(const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const auto count = write(file_, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) cannot_write(path_);
    done += static_cast<std::size_t>(count);
  }
  if (fdatasync(file_) != 0) cannot_write(path_);
}

void LineJournal::remove() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace kvatlas
