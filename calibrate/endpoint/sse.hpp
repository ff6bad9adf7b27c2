// SPDX-License-Identifier: Apache-2.0
// Answers that come in pieces: server-sent events, and JSON line by line.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace kvatlas::calibrate {

inline constexpr std::size_t kMostLineBytes = std::size_t{1} << 20;

/// Puts events together from pieces of any size.
class EventReader {
 public:
  enum class Form { events, lines };  // of server-sent events, or a JSON text in each line
  explicit EventReader(Form form) : form_(form) {}

  using Take = std::function<void(std::string_view data)>;
  /// Calls `take` with the data of each event that these bytes complete. Comments, names of events
  /// and what else stands beside the data are passed over. Error(unreadable) for a line, or an
  /// event, of more than kMostLineBytes.
  void push(std::string_view bytes, const Take& take);
  /// Of a stream that has ended: a last line without its end. An event that its empty line never
  /// closed is none.
  void finish(const Take& take);

 private:
  void end_line(const Take& take);

  Form form_;
  std::string line_, data_;
  bool has_data_ = false, after_return_ = false, first_ = true;
};

}  // namespace kvatlas::calibrate
