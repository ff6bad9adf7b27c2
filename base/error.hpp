// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "base/str.hpp"

namespace kvatlas {

/// What kind of failure it is; `exit_status` turns it into the program's exit code.
enum class ErrorCode { usage, unreadable, unsupported, numeric, resource, cancelled, internal };

/// The one exception that the libraries throw. It has a code, and one clear sentence that says what
/// is wrong, where, and what can be done.
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string text) : code_(code), text_(std::move(text)) {}

  /// Puts "place: " before the sentence. Each caller adds its own, so that a message reads from the
  /// outside in: file, part of the file, member.
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

/// Error(unreadable) of a file whose end is missing.
class CutError : public Error {
 public:
  explicit CutError(std::string text) : Error(ErrorCode::unreadable, std::move(text)) {}
};

/// Runs `fn`. An Error that it throws gets "place: " before its sentence.
template <class Fn>
decltype(auto) in_context(const std::string& place, Fn&& fn) {
  try {
    return std::forward<Fn>(fn)();
  } catch (Error& error) {
    error.in(place);
    throw;
  }
}

/// Throws an Error whose sentence is made of the parts, as str() writes them.
template <class... Parts>
[[noreturn]] void fail(ErrorCode code, const Parts&... parts) {
  throw Error(code, str(parts...));
}

/// The same for a file whose end is missing.
template <class... Parts>
[[noreturn]] void fail_cut(const Parts&... parts) {
  throw CutError(str(parts...));
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
