// SPDX-License-Identifier: Apache-2.0
// A little HTTP server on this machine, as honest or as hostile as a test wants it.
#pragma once

#include <arpa/inet.h>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <netinet/in.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <strings.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace kvatlas::testing_support {

struct HttpSeen {
  std::string method, path, headers, body;
};

/// One connection, on which a handler writes what it likes.
class HttpReply {
 public:
  explicit HttpReply(int socket) : socket_(socket) {}
  /// False if nobody reads any more.
  bool raw(std::string_view bytes) const {
    while (!bytes.empty()) {
      const auto count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }
  /// A whole answer, after which the connection closes.
  bool whole(int status, std::string_view body, std::string_view headers = {}) const {
    return raw("HTTP/1.1 " + std::to_string(status) + " X\r\nConnection: close\r\n" +
               std::string(headers) + "Content-Length: " + std::to_string(body.size()) +
               "\r\n\r\n") &&
           raw(body);
  }
  /// Ends the connection in the rudest way.
  void reset() const {
    const linger now{1, 0};
    setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }

 private:
  int socket_;
};

class LoopbackServer {
 public:
  using Handle = std::function<void(const HttpSeen&, const HttpReply&)>;
  /// `port` 0: one that is free.
  explicit LoopbackServer(Handle handle, int port = 0) : handle_(std::move(handle)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    socklen_t size = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        listen(listener_, 64) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw std::runtime_error("no port on this machine");
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this] { accept_all(); });
  }
  ~LoopbackServer() { stop(); }
  /// Takes no more connections; those that are open end.
  void stop() {
    if (stopped_.exchange(true)) return;
    shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int socket : open_) shutdown(socket, SHUT_RDWR);
    }
    for (auto& thread : threads_) thread.join();
    close(listener_);
  }
  int port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<HttpSeen> seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  bool stopped() const { return stopped_; }

 private:
  void accept_all() {
    for (;;) {
      const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) {
        if (stopped_ || errno != EINTR) return;
        continue;
      }
      const std::lock_guard lock(mutex_);
      open_.push_back(socket);
      threads_.emplace_back([this, socket] { serve(socket); });
    }
  }
  void serve(int socket) {
    HttpSeen request;
    if (read(socket, request)) {
      {
        const std::lock_guard lock(mutex_);
        seen_.push_back(request);
      }
      handle_(request, HttpReply(socket));
    }
    const std::lock_guard lock(mutex_);
    std::erase(open_, socket);
    close(socket);
  }
  static bool read(int socket, HttpSeen& request) {
    std::string all;
    std::size_t head = std::string::npos, length = 0;
    char buffer[65536];
    while (head == std::string::npos || all.size() < head + 4 + length) {
      const auto count = recv(socket, buffer, sizeof buffer, 0);
      if (count <= 0) return false;
      all.append(buffer, static_cast<std::size_t>(count));
      if (all[0] < 'A' || all[0] > 'Z') return false;  // a TLS greeting
      if (head == std::string::npos && (head = all.find("\r\n\r\n")) != std::string::npos) {
        request.headers = all.substr(0, head);
        if (const auto at = request.headers.find("Content-Length: "); at != std::string::npos)
          length = std::strtoull(request.headers.c_str() + at + 16, nullptr, 10);
      }
    }
    const auto space = all.find(' ');
    request.method = all.substr(0, space);
    request.path = all.substr(space + 1, all.find(' ', space + 1) - space - 1);
    request.body = all.substr(head + 4);
    return true;
  }

  Handle handle_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stopped_ = false;
  std::thread accepting_;
  mutable std::mutex mutex_;
  std::vector<int> open_;
  std::vector<std::thread> threads_;
  std::vector<HttpSeen> seen_;
};

}  // namespace kvatlas::testing_support
