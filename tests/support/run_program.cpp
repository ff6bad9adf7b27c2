// SPDX-License-Identifier: Apache-2.0
#include "tests/support/run_program.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace kvatlas::testing_support {
namespace {

using Clock = std::chrono::steady_clock;
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File temporary_file() {
  File file(std::tmpfile(), std::fclose);
  if (!file) throw std::runtime_error("no temporary file can be made");
  return file;
}

std::string contents(std::FILE* file) {
  // The program writes at the same file position: it must not be moved.
  std::string text;
  char piece[4096];
  for (ssize_t n;
       (n = pread(fileno(file), piece, sizeof piece, static_cast<off_t>(text.size()))) > 0;)
    text.append(piece, static_cast<std::size_t>(n));
  return text;
}

}  // namespace

Finished run_kvatlas(const std::vector<std::string>& arguments, const std::string& interrupt_at) {
  std::vector<std::string> words{KVATLAS_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const File out = temporary_file(), err = temporary_file();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    const int none = open("/dev/null", O_RDONLY);
    if (none < 0 || dup2(none, 0) < 0 || dup2(fileno(out.get()), 1) < 0 ||
        dup2(fileno(err.get()), 2) < 0)
      _exit(126);
    execv(argv[0], argv.data());
    _exit(127);
  }

  const auto start = Clock::now();
  bool interrupted = interrupt_at.empty();
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (!interrupted && contents(err.get()).find(interrupt_at) != std::string::npos) {
      kill(child, SIGINT);
      interrupted = true;
    }
    if (Clock::now() - start > std::chrono::minutes(5)) kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), contents(out.get()),
          contents(err.get())};
}

}  // namespace kvatlas::testing_support
