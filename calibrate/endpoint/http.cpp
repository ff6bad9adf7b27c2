// SPDX-License-Identifier: Apache-2.0
#include "calibrate/endpoint/http.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <thread>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/plain_text.hpp"
#include "base/surroundings.hpp"
#include "base/unicode_text.hpp"
#include "calibrate/endpoint/http_calls.hpp"

namespace kvatlas::calibrate {
namespace {

constexpr double kConnectSeconds = 10;
constexpr double kLongestWait = 60;

const KvatlasHttp& http_module() {
  static const KvatlasHttp* const calls = [] {
    const auto path = program_folder() / KVATLAS_MODULE_DIR "/libkvatlas_http.so";
    if (!std::filesystem::exists(path))
      fail(ErrorCode::unsupported,
           "this build reaches no servers: install libcurl4-openssl-dev and build again");
    void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!module)
      fail(ErrorCode::unsupported, "servers cannot be reached: ", printable(dlerror(), 300));
    auto* open = reinterpret_cast<decltype(&kvatlas_open_http)>(dlsym(module, "kvatlas_open_http"));
    const KvatlasHttp* opened = open ? open() : nullptr;
    if (!opened) fail(ErrorCode::unsupported, "servers cannot be reached: libcurl does not start");
    return opened;
  }();
  return *calls;
}

/// Where Debian, Fedora and SUSE keep the certificates of authorities; empty if in none of them.
std::string system_ca_file() {
  for (const char* path : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem"})
    if (std::error_code error; std::filesystem::exists(path, error)) return path;
  return {};
}

bool is_loopback(const std::string& host) {
  if (host == "localhost" || host == "[::1]") return true;
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

void wait_for(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    stop_if_interrupted();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

/// What one try needs while libcurl works on it.
struct Try {
  const HttpConnection::Request& request;
  HttpAnswer answer;
  double retry_after = -1;
  std::size_t bytes = 0;
  bool too_much = false, refused = false;
};

void begin_try(void* user, long status, double retry_after) {
  auto& one = *static_cast<Try*>(user);
  one.answer.status = status;
  one.retry_after = retry_after;
}

int take_piece(void* user, const char* data, std::size_t size) {
  auto& one = *static_cast<Try*>(user);
  one.bytes += size;
  one.too_much = one.bytes > kMostBodyBytes;
  if (one.too_much) return 0;
  if (one.request.take && one.answer.status == 200) {
    one.refused = !one.request.take({data, size});
    return one.refused ? 0 : 1;
  }
  one.answer.body.append(data, size);
  return 1;
}

int ask_interrupted(void*) { return interrupted() ? 1 : 0; }

}  // namespace

ServerUrl parse_server_url(std::string_view text) {
  const auto refuse = [&](const auto&... why) {
    fail(ErrorCode::usage, quoted(std::string(text), 200), ' ', why...,
         ": give a server as http://HOST:PORT or https://HOST");
  };
  ServerUrl url;
  std::string_view rest = text;
  if (rest.starts_with("https://"))
    url.secure = true;
  else if (!rest.starts_with("http://"))
    refuse("does not begin with http:// or https://");
  rest.remove_prefix(url.secure ? 8 : 7);
  const std::size_t path = std::min(rest.find('/'), rest.size());
  const std::string_view authority = rest.substr(0, path);
  if (authority.find('@') != authority.npos)
    refuse("holds a name or a password (keys come from KVATLAS_API_KEY)");
  const std::size_t bracket = authority.starts_with('[') ? authority.find(']') : 0;
  if (bracket == authority.npos) refuse("has no host");
  const std::size_t colon = std::min(authority.find(':', bracket), authority.size());
  url.host = authority.substr(0, colon);
  const auto is_one_of = [](std::string_view part, std::string_view others) {
    return std::all_of(part.begin(), part.end(), [&](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || others.find(c) != others.npos;
    });
  };
  const bool is_host =
      url.host.starts_with('[') ? is_one_of(url.host, "[]:.") : is_one_of(url.host, "-._");
  if (url.host.empty() || !is_host) refuse("has no host that could be reached");
  if (colon < authority.size()) {
    const std::string port(authority.substr(colon + 1));
    const bool digits =
        std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (port.empty() || port.size() > 5 || !digits || std::stoi(port) < 1 ||
        std::stoi(port) > 65535)
      refuse("has no port from 1 to 65535 behind its colon");
  }
  if (!is_one_of(rest.substr(path), "/-._~%")) refuse("holds more than a path behind its host");
  url.loopback = is_loopback(url.host);
  url.text = text;
  const auto drop = [&](std::string_view end) {
    if (url.text.ends_with(end)) url.text.resize(url.text.size() - end.size());
  };
  drop("/");
  drop("/v1");
  return url;
}

ApiKey ApiKey::from_environment(const std::string& variable) {
  ApiKey key;
  // Nothing else runs yet that could change the environment.
  if (const char* value = std::getenv(variable.c_str()))
    key.value_ = value;  // NOLINT(concurrency-mt-unsafe)
  if (!std::all_of(key.value_.begin(), key.value_.end(), [](char c) { return c > ' ' && c < 127; }))
    fail(ErrorCode::usage, "the key in ", variable, " holds a character that no key has");
  return key;
}

std::string ApiKey::redacted(std::string text) const {
  for (std::size_t at = 0; is_set() && (at = text.find(value_, at)) != text.npos; at += 5)
    text.replace(at, value_.size(), "[key]");
  return text;
}

double retry_delay(int tries, double retry_after) {
  if (retry_after >= 0) return std::min(retry_after, kLongestWait);
  return std::min(0.5 * static_cast<double>(1 << std::min(tries, 10)), kLongestWait);
}

bool is_worth_a_retry(long status) {
  return status == 408 || status == 429 || status == 500 || (status >= 502 && status <= 504);
}

HttpConnection::HttpConnection(const HttpPlace& place)
    : place_(place), calls_(&http_module()), connection_(nullptr) {
  const auto& url = place_.url;
  if (place_.key.is_set() && !url.secure && !url.loopback && !place_.key_over_http)
    fail(ErrorCode::usage, "the key would go to ", printable(url.text, 200),
         " where everybody between can read it: use https, or --key-over-http where the network is "
         "your own");
  if (url.secure && place_.ca_file.empty()) place_.ca_file = system_ca_file();
  connection_ = calls_->open();
  if (!connection_) fail(ErrorCode::resource, "no memory for a connection");
}

HttpConnection::~HttpConnection() { calls_->close(connection_); }

HttpAnswer HttpConnection::send(const Request& request) {
  const std::string url = place_.url.text + request.path;
  const std::string authorization = place_.key.is_set() ? place_.key.header() : "";
  std::vector<const char*> headers = {"Accept: application/json, text/event-stream, text/plain",
                                      "User-Agent: kvatlas", "Expect:"};
  if (!request.body.empty()) headers.push_back("Content-Type: application/json");
  if (!authorization.empty()) headers.push_back(authorization.c_str());
  headers.push_back(nullptr);
  for (int tries = 0;; ++tries) {
    stop_if_interrupted();
    Try one{request, {}, -1, 0, false, false};
    one.answer.retries = tries;
    const KvatlasHttpRequest call{url.c_str(),
                                  headers.data(),
                                  request.body.empty() ? nullptr : request.body.data(),
                                  request.body.size(),
                                  place_.ca_file.empty() ? nullptr : place_.ca_file.c_str(),
                                  place_.url.loopback ? 1 : 0,
                                  kConnectSeconds,
                                  place_.seconds,
                                  &one,
                                  begin_try,
                                  take_piece,
                                  ask_interrupted};
    if (request.begin) request.begin();
    std::array<char, 300> trouble{};
    const auto start = std::chrono::steady_clock::now();
    const auto outcome = calls_->perform(connection_, &call, trouble.data(), trouble.size());
    stop_if_interrupted();
    one.answer.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const std::string words = place_.key.redacted(printable(trouble.data(), 250));
    const std::string server = printable(place_.url.text, 200);
    bool again = false;
    switch (outcome) {
      case kvatlas_http_done:
        again = is_worth_a_retry(one.answer.status);
        break;
      case kvatlas_http_bad_certificate:
        fail(ErrorCode::unsupported, server, ": its certificate does not hold (", words,
             "): --ca-file names the authority of a server of your own");
      case kvatlas_http_ended:
        if (one.too_much)
          one.answer.trouble =
              str(server, " sends more than ", kMostBodyBytes >> 20, " MiB in one answer");
        break;  // else `take` knows why
      case kvatlas_http_timed_out:
        // A request that may take ten minutes is not tried six times.
        one.answer.trouble = str(server, " gave no whole answer within ",
                                 fixed_text(one.answer.seconds, 0), " s (", words, ')');
        break;
      case kvatlas_http_no_connection:
      case kvatlas_http_broken:
        again = true;
        one.answer.trouble = str(server, ": ", words);
        break;
    }
    if (one.answer.status >= 300 && one.answer.status < 400)
      fail(ErrorCode::unsupported, server,
           " answers with a redirect, which is not followed: give the address that it leads to");
    if (!again || tries >= request.retries) return std::move(one.answer);
    wait_for(retry_delay(tries, one.retry_after));
  }
}

}  // namespace kvatlas::calibrate
