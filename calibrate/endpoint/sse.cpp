// SPDX-License-Identifier: Apache-2.0
#include "calibrate/endpoint/sse.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace kvatlas::calibrate {
namespace {

void require_short(std::size_t bytes, const char* what) {
  if (bytes > kMostLineBytes)
    fail(ErrorCode::unreadable, "the answer has ", what, " of more than ", kMostLineBytes >> 20,
         " MiB");
}

}  // namespace

void EventReader::push(std::string_view bytes, const Take& take) {
  while (!bytes.empty()) {
    // A line ends with "\n", "\r" or "\r\n".
    if (std::exchange(after_return_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const std::size_t end = bytes.find_first_of("\r\n");
    line_.append(bytes.substr(0, end));
    require_short(line_.size(), "a line");
    if (end == bytes.npos) return;
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    end_line(take);
  }
}

void EventReader::finish(const Take& take) {
  if (!line_.empty() && form_ == Form::lines) end_line(take);
  line_.clear();
  data_.clear();
  has_data_ = false;
}

void EventReader::end_line(const Take& take) {
  std::string line = std::exchange(line_, {});
  if (std::exchange(first_, false) && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
  if (form_ == Form::lines) {
    if (!line.empty()) take(line);
    return;
  }
  if (line.empty()) {
    const std::string data = std::exchange(data_, {});
    if (std::exchange(has_data_, false)) take(data);
    return;
  }
  const std::size_t colon = std::min(line.find(':'), line.size());
  if (std::string_view(line).substr(0, colon) != "data") return;
  std::string_view value = std::string_view(line).substr(std::min(colon + 1, line.size()));
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
  require_short(data_.size(), "an event");
}

}  // namespace kvatlas::calibrate
