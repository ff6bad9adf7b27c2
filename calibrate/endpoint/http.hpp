// SPDX-License-Identifier: Apache-2.0
// Requests over HTTP: through libcurl, which lies in a module beside the program. What comes back
// is hostile: its size, its pace and its words.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct KvatlasHttp;

namespace kvatlas::calibrate {

inline constexpr std::size_t kMostBodyBytes = std::size_t{64} << 20;
inline constexpr int kMostRetries = 5;

/// Where a server is: "http" or "https", a host, maybe a port and a path.
struct ServerUrl {
  std::string text;  // without "/" and "/v1" at its end
  std::string host;
  bool secure = false;    // https
  bool loopback = false;  // this machine
};
/// Error(usage) for anything else: other protocols, names and passwords, queries, odd characters.
ServerUrl parse_server_url(std::string_view text);

/// A key for a server. Nothing that is printed or written goes past redacted().
class ApiKey {
 public:
  ApiKey() = default;
  /// From a variable of the environment. Error(usage) if it holds anything but visible ASCII.
  static ApiKey from_environment(const std::string& variable);
  bool is_set() const { return !value_.empty(); }
  std::string header() const { return "Authorization: Bearer " + value_; }
  /// The text with "[key]" wherever the key stands in it.
  std::string redacted(std::string text) const;

 private:
  std::string value_;
};

/// What one server is reached with.
struct HttpPlace {
  ServerUrl url;
  ApiKey key;
  std::string ca_file;
  double seconds = 600;  // that one request may take
  bool key_over_http = false;
};

struct HttpAnswer {
  long status = 0;
  std::string body;     // of requests without `take`, and of statuses other than 200
  int retries = 0;      // before this answer
  double seconds = 0;   // from the last request's start
  std::string trouble;  // empty: there is an answer; else why there is none
};

/// One connection to a server, for one thread at a time.
class HttpConnection {
 public:
  /// Error(unsupported) if the build has no libcurl; Error(usage) if a key would go over plain http
  /// to another machine.
  explicit HttpConnection(const HttpPlace& place);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  struct Request {
    std::string path;  // "/v1/models"
    std::string body;  // empty: GET
    int retries = kMostRetries;
    /// Told before each try; then pieces of the body of status 200, until it returns false.
    std::function<void()> begin = {};
    std::function<bool(std::string_view)> take = {};
  };
  /// Tries again where no connection is made or it breaks, and for 408, 429, 500 and 502 to 504.
  /// Ctrl-C ends it: Error(cancelled). Error(unsupported) for what is no matter of one request:
  /// redirects, and certificates that do not hold.
  HttpAnswer send(const Request& request);

 private:
  HttpPlace place_;
  const KvatlasHttp* calls_;
  void* connection_;
};

/// How long to wait before a try, in seconds: what the server asks for, at most 60, else longer
/// from try to try.
double retry_delay(int tries, double retry_after);
bool is_worth_a_retry(long status);

}  // namespace kvatlas::calibrate
