// SPDX-License-Identifier: Apache-2.0
#include "calibrate/endpoint/http.hpp"

#include <chrono>
#include <cstdlib>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/endpoint/loopback_server.hpp"

namespace {

using namespace kvatlas;
using namespace kvatlas::calibrate;
using testing::HasSubstr;
using testing::Not;
using testing_support::error_of;
using testing_support::HttpReply;
using testing_support::HttpSeen;
using testing_support::LoopbackServer;

HttpPlace place_of(const std::string& url) {
  HttpPlace place;
  place.url = parse_server_url(url);
  return place;
}

HttpAnswer get(const HttpPlace& place, int retries = 0) {
  HttpConnection connection(place);
  HttpConnection::Request request;
  request.path = "/x";
  request.retries = retries;
  return connection.send(request);
}

TEST(ServerUrls, AreReadStrictly) {
  EXPECT_EQ(parse_server_url("http://127.0.0.1:8000/v1/").text, "http://127.0.0.1:8000");
  EXPECT_EQ(parse_server_url("https://host.example/base").text, "https://host.example/base");
  EXPECT_TRUE(parse_server_url("http://[::1]:80").loopback);
  EXPECT_TRUE(parse_server_url("http://127.9.9.9").loopback);
  EXPECT_TRUE(parse_server_url("http://localhost:1").loopback);
  EXPECT_FALSE(parse_server_url("http://127.0.0.1.example").loopback);
  EXPECT_FALSE(parse_server_url("http://localhost.example").loopback);
  for (const char* bad :
       {"", "ftp://a", "file:///etc/passwd", "http://", "http://u:p@host", "http://host:0",
        "http://host:99999", "http://host:", "http://a b", "http://host/?q=1", "http://host/#a",
        "http://host\\@evil", "http://[::1", "http://a\nb", "127.0.0.1:80"})
    EXPECT_THAT(error_of([&] { parse_server_url(bad); }), HasSubstr("give a server as")) << bad;
}

TEST(ApiKeys, StayWhereTheyBelong) {
  setenv("KVATLAS_TEST_KEY", "sk-secret", 1);
  HttpPlace place = place_of("http://host.example");
  place.key = ApiKey::from_environment("KVATLAS_TEST_KEY");
  EXPECT_EQ(place.key.redacted("no sk-secret here: sk-secret"), "no [key] here: [key]");
  EXPECT_THAT(error_of([&] { HttpConnection connection(place); }), HasSubstr("--key-over-http"));
  place.key_over_http = true;
  EXPECT_EQ(error_of([&] { HttpConnection connection(place); }), "");
  setenv("KVATLAS_TEST_KEY", "a\r\nHost: b", 1);
  EXPECT_THAT(error_of([] { ApiKey::from_environment("KVATLAS_TEST_KEY"); }),
              HasSubstr("that no key has"));
  unsetenv("KVATLAS_TEST_KEY");
  EXPECT_FALSE(ApiKey::from_environment("KVATLAS_TEST_KEY").is_set());

  setenv("KVATLAS_TEST_KEY", "sk-secret", 1);
  LoopbackServer server([](const HttpSeen&, const HttpReply& reply) { reply.whole(200, "{}"); });
  HttpPlace here = place_of(server.url());
  here.key = ApiKey::from_environment("KVATLAS_TEST_KEY");
  EXPECT_EQ(get(here).status, 200);
  EXPECT_THAT(server.seen().at(0).headers, HasSubstr("Authorization: Bearer sk-secret"));
  EXPECT_THAT(server.seen().at(0).headers, Not(HasSubstr("Accept-Encoding")));
}

TEST(Http, TriesAgainWhatMayPass) {
  int asked = 0;
  LoopbackServer server([&](const HttpSeen&, const HttpReply& reply) {
    if (++asked == 1) return void(reply.whole(503, "busy", "Retry-After: 0\r\n"));
    if (asked == 2) return reply.reset();
    reply.whole(200, "here");
  });
  const HttpAnswer got = get(place_of(server.url()), 3);
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.body, "here");
  EXPECT_EQ(got.retries, 2);
  EXPECT_EQ(retry_delay(0, 500), 60);
  EXPECT_EQ(retry_delay(2, -1), 2);
  EXPECT_LE(retry_delay(1000, -1), 60);
  EXPECT_TRUE(is_worth_a_retry(429));
  EXPECT_FALSE(is_worth_a_retry(400));
  EXPECT_FALSE(is_worth_a_retry(501));
}

TEST(Http, WhatIsNoAnswerIsSaid) {
  const auto trouble = [](LoopbackServer::Handle handle, double seconds = 20) {
    LoopbackServer server(std::move(handle));
    HttpPlace place = place_of(server.url());
    place.seconds = seconds;
    return get(place).trouble;
  };
  EXPECT_THAT(trouble([](const HttpSeen&, const HttpReply& reply) { reply.reset(); }),
              HasSubstr("127.0.0.1"));
  // It promises more than it sends.
  EXPECT_NE(trouble([](const HttpSeen&, const HttpReply& reply) {
              reply.raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nten bytes.");
            }),
            "");
  EXPECT_NE(trouble([](const HttpSeen&, const HttpReply& reply) { reply.raw("\x01\x02 rubbish"); }),
            "");
  // It never ends its headers.
  EXPECT_NE(trouble([](const HttpSeen&, const HttpReply& reply) {
              reply.raw("HTTP/1.1 200 OK\r\n");
              for (int i = 0; i < 100000; ++i)
                if (!reply.raw("X-Header-" + std::to_string(i) + ": some value of it\r\n")) return;
            }),
            "");
  // It stalls.
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(trouble(
                  [](const HttpSeen&, const HttpReply& reply) {
                    reply.raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n");
                    for (int i = 0; i < 30 && reply.raw("x"); ++i)
                      std::this_thread::sleep_for(std::chrono::milliseconds(100));
                  },
                  1),
              HasSubstr("no whole answer within"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(Http, FloodsEnd) {
  std::size_t sent = 0;
  LoopbackServer server([&](const HttpSeen&, const HttpReply& reply) {
    reply.raw("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n");
    const std::string piece(std::size_t{1} << 20, 'x');
    while (reply.raw(piece)) sent += piece.size();
  });
  EXPECT_THAT(get(place_of(server.url())).trouble, HasSubstr("more than 64 MiB"));
  server.stop();
  EXPECT_LT(sent, std::size_t{200} << 20);
}

TEST(Http, FollowsNoRedirectAndDecompressesNothing) {
  LoopbackServer server([](const HttpSeen&, const HttpReply& reply) {
    reply.whole(307, "", "Location: http://127.0.0.1:1/\r\n");
  });
  EXPECT_THAT(error_of([&] { get(place_of(server.url())); }), HasSubstr("redirect"));
  LoopbackServer packed([](const HttpSeen&, const HttpReply& reply) {
    reply.whole(200, "\x1f\x8b not really gzip", "Content-Encoding: gzip\r\n");
  });
  EXPECT_EQ(get(place_of(packed.url())).body, "\x1f\x8b not really gzip");
}

TEST(Http, ServersThatAreNotThere) {
  LoopbackServer gone([](const HttpSeen&, const HttpReply&) {});
  const std::string url = gone.url();
  gone.stop();
  EXPECT_THAT(get(place_of(url)).trouble, HasSubstr(url));
  // Certificates are looked at: this server knows no TLS at all.
  LoopbackServer plain([](const HttpSeen&, const HttpReply& reply) { reply.whole(200, "{}"); });
  std::string secure = plain.url();
  secure.replace(0, 4, "https");
  EXPECT_NE(get(place_of(secure)).trouble, "");
}

}  // namespace
