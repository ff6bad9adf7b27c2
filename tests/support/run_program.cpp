// SPDX-License-Identifier: Apache-2.0
#include "tests/support/run_program.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <stdexcept>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace kvatlas::testing_support {
namespace {

using Clock = std::chrono::steady_clock;
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

/// After this a program hangs. Sanitizers slow it by an order of magnitude.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::chrono::minutes kLongest{90};
#else
constexpr std::chrono::minutes kLongest{15};
#endif

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

std::string kvatlas_program() { return KVATLAS_PROGRAM; }

Finished run_kvatlas(const std::vector<std::string>& arguments, const RunHow& how) {
  std::vector<std::string> command{kvatlas_program()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_program(command, how);
}

Finished run_program(const std::vector<std::string>& command, const RunHow& how) {
  std::vector<std::string> words = command;
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
    setpgid(0, 0);
    if (how.largest_file > 0) {
      signal(SIGXFSZ, SIG_IGN);  // so that writing fails, as it does on a full disk
      const auto most = static_cast<rlim_t>(how.largest_file);
      const rlimit limit{most, most};
      setrlimit(RLIMIT_FSIZE, &limit);
    }
    execvp(argv[0], argv.data());
    _exit(127);
  }

  const auto start = Clock::now();
  bool interrupted = how.interrupt_at.empty();
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (!interrupted && contents(err.get()).find(how.interrupt_at) != std::string::npos) {
      kill(child, SIGINT);
      interrupted = true;
    }
    const auto passed = Clock::now() - start;
    if (passed > kLongest || (how.kill_after.count() > 0 && passed > how.kill_after))
      kill(-child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(how.kill_after.count() > 0 ? 1 : 5));
  }
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), contents(out.get()),
          contents(err.get())};
}

}  // namespace kvatlas::testing_support
