// SPDX-License-Identifier: Apache-2.0
// What the HTTP module offers to the program, in plain C.
#pragma once

#include <cstddef>

extern "C" {

struct KvatlasHttpRequest {
  const char* url;
  const char* const* headers;  // "Name: value", and a null pointer behind the last
  const char* body;            // null: a GET request; else a POST request
  std::size_t body_size;
  const char* ca_file;  // certificates of authorities; null: those that libcurl was built with
  int without_proxy;    // 1: whatever the environment says
  double connect_seconds, seconds;
  void* user;  // handed to the functions below
  /// Told the status and the number that the header Retry-After holds (-1: none), before the body.
  void (*begin)(void* user, long status, double retry_after);
  /// Takes a piece of the body; 0 ends the request.
  int (*take)(void* user, const char* data, std::size_t size);
  /// Asked all the time; 1 ends the request.
  int (*stop)(void* user);
};

enum KvatlasHttpOutcome {
  kvatlas_http_done,
  kvatlas_http_no_connection,
  kvatlas_http_bad_certificate,
  kvatlas_http_timed_out,
  kvatlas_http_ended,   // by take or stop
  kvatlas_http_broken,  // the connection, or what came over it
};

struct KvatlasHttp {
  /// A connection that is kept from one request to the next. null if there is no memory.
  void* (*open)();
  void (*close)(void* connection);
  /// Fills `trouble` with words about what went wrong.
  KvatlasHttpOutcome (*perform)(void* connection, const KvatlasHttpRequest* request, char* trouble,
                                std::size_t trouble_size);
};

/// nullptr if libcurl does not start.
const KvatlasHttp* kvatlas_open_http();
}
