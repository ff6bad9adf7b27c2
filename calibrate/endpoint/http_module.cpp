// SPDX-License-Identifier: Apache-2.0
// The part of the program that is linked with libcurl: a module, opened by http.cpp.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <curl/curl.h>
#include <string>
#include <strings.h>

#include "calibrate/endpoint/http_calls.hpp"

namespace {

constexpr std::size_t kMostHeaderBytes = std::size_t{1} << 20;

struct Transfer {
  CURL* handle;
  const KvatlasHttpRequest* request;
  std::size_t header_bytes = 0;
  double retry_after = -1;
  bool began = false, ended = false;
};

std::size_t take_header(char* data, std::size_t size, std::size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::size_t bytes = size * count;
  transfer.header_bytes += bytes;
  if (transfer.header_bytes > kMostHeaderBytes) return 0;
  static constexpr char kName[] = "retry-after:";
  if (bytes > sizeof(kName) && strncasecmp(data, kName, sizeof(kName) - 1) == 0) {
    const std::string value(data + sizeof(kName) - 1, bytes - sizeof(kName) + 1);
    char* end = nullptr;
    const double seconds = std::strtod(value.c_str(), &end);
    if (end != value.c_str() && seconds >= 0) transfer.retry_after = seconds;
  }
  return bytes;
}

void begin_once(Transfer& transfer) {
  if (transfer.began) return;
  transfer.began = true;
  long status = 0;
  curl_easy_getinfo(transfer.handle, CURLINFO_RESPONSE_CODE, &status);
  transfer.request->begin(transfer.request->user, status, transfer.retry_after);
}

std::size_t take_body(char* data, std::size_t size, std::size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  begin_once(transfer);
  if (transfer.request->take(transfer.request->user, data, size * count) != 0) return size * count;
  transfer.ended = true;
  return size * count + 1;  // any other number ends the request
}

int ask_to_stop(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& transfer = *static_cast<Transfer*>(user);
  if (transfer.request->stop(transfer.request->user) == 0) return 0;
  transfer.ended = true;
  return 1;
}

void* open_connection() { return curl_easy_init(); }

void close_connection(void* connection) { curl_easy_cleanup(connection); }

KvatlasHttpOutcome outcome_of(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return kvatlas_http_done;
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
      return kvatlas_http_no_connection;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS:
      return kvatlas_http_bad_certificate;
    case CURLE_OPERATION_TIMEDOUT:
      return kvatlas_http_timed_out;
    default:
      return kvatlas_http_broken;
  }
}

KvatlasHttpOutcome perform(void* connection, const KvatlasHttpRequest* request, char* trouble,
                           std::size_t trouble_size) {
  auto* handle = static_cast<CURL*>(connection);
  curl_easy_reset(handle);  // keeps the open connection
  Transfer transfer{handle, request};
  char words[CURL_ERROR_SIZE] = "";
  const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(handle, option, value); };
  set(CURLOPT_URL, request->url);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_SSL_VERIFYPEER, 1L);
  set(CURLOPT_SSL_VERIFYHOST, 2L);
  set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  set(CURLOPT_HTTP_CONTENT_DECODING, 0L);
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  if (request->ca_file) set(CURLOPT_CAINFO, request->ca_file);
  if (request->without_proxy != 0) set(CURLOPT_PROXY, "");
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(1000 * request->connect_seconds));
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(1000 * request->seconds));
  set(CURLOPT_ERRORBUFFER, words);
  set(CURLOPT_HEADERFUNCTION, take_header);
  set(CURLOPT_HEADERDATA, &transfer);
  set(CURLOPT_WRITEFUNCTION, take_body);
  set(CURLOPT_WRITEDATA, &transfer);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, ask_to_stop);
  set(CURLOPT_XFERINFODATA, &transfer);
  if (request->body) {
    set(CURLOPT_POST, 1L);
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request->body_size));
    set(CURLOPT_POSTFIELDS, request->body);
  }
  curl_slist* headers = nullptr;
  for (const char* const* header = request->headers; *header; ++header)
    if (curl_slist* longer = curl_slist_append(headers, *header)) headers = longer;
  set(CURLOPT_HTTPHEADER, headers);
  const CURLcode code = curl_easy_perform(handle);
  if (code == CURLE_OK) begin_once(transfer);
  curl_slist_free_all(headers);
  const char* said = words[0] != '\0' ? words : curl_easy_strerror(code);
  const std::size_t length = std::min(std::strlen(said), trouble_size - 1);
  std::memcpy(trouble, said, length);
  trouble[length] = '\0';
  return transfer.ended ? kvatlas_http_ended : outcome_of(code);
}

}  // namespace

const KvatlasHttp* kvatlas_open_http() {
  static constexpr KvatlasHttp kCalls{open_connection, close_connection, perform};
  return curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? &kCalls : nullptr;
}
