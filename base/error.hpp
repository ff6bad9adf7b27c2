// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "base/str.hpp"

namespace kvatlas {

/// What kind of failure it is; `exit_status` turns it into the program's exit code.
enum class ErrorCode { usage, unreadable, unsupported, numeric, resource, cancelled, internal };

/// The one exception the libraries throw: a code and one clear sentence (what, where, what to do).
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string text) : code_(code), text_(std::move(text)) {}

  /// Puts "place: " in front, so that a message names its thing from the outside in.
  Error& in(const std::string& place) {
    text_ = place + ": " + text_;
    return *this;
  }

  ErrorCode code() const noexcept { return code_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  ErrorCode code_;
  std::string text_;
};

/// Runs `fn`; an Error that leaves it is given "place: " in front.
template <class Fn>
decltype(auto) in_context(const std::string& place, Fn&& fn) {
  try {
    return std::forward<Fn>(fn)();
  } catch (Error& error) {
    error.in(place);
    throw;
  }
}

/// Throws Error(code, the parts joined).
template <class... Parts>
[[noreturn]] void fail(ErrorCode code, const Parts&... parts) {
  throw Error(code, str(parts...));
}

/// The program's exit code for a failure.
constexpr int exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::usage:
      return 2;
    case ErrorCode::unreadable:
      return 3;
    case ErrorCode::cancelled:
      return 130;
    default:
      return 1;
  }
}

}  // namespace kvatlas
