// For tests: ranks of several hosts, which are threads here. Each "host" has a folder of its own, and TCP goes over
// loopback.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/backends/native/native.h"
#include "rendezvous/tls/testing.h"
#include "rendezvous/tls/tls.h"

namespace mslua {

// The TLS of all ranks.
inline std::shared_ptr<Tls> OwnTls() {
  static const TestCertificates files;
  static const std::shared_ptr<Tls> tls = *Tls::Load({files.config(), "", "", {}});
  return tls;
}

// Hosts of the ranks, by name: "ab" is two hosts of a rank each, "aab" puts ranks 0 and 1 together. "+ab": with TLS.
class World {
 public:
  explicit World(const std::string& hosts) {
    char path[] = "/tmp/mslua-test-XXXXXX";
    root_ = mkdtemp(path);
    for (char host : hosts) {
      if (host == '+') tls_ = OwnTls();
      if (host == '+') continue;
      listeners_.push_back(*ListenTcp({"127.0.0.1", 0}));
      peers_.push_back({std::string(1, host), *LocalEndpoint(listeners_.back())});
      std::filesystem::create_directory(absl::StrCat(root_, "/", peers_.back().host));
    }
  }
  ~World() { std::filesystem::remove_all(root_); }
  int size() const { return static_cast<int>(peers_.size()); }
  StatusOr<std::unique_ptr<Communicator>> Make(int rank) {
    NativeOptions options;
    options.rank = rank;
    options.size = size();
    options.peers = peers_;
    options.folder = absl::StrCat(root_, "/", peers_[rank].host);
    options.job = "test";
    options.secret = secrets.count(rank) > 0 ? secrets.at(rank) : "the secret of a test";
    options.tls = tls_;
    if (tls_ != nullptr) options.secret.clear();
    options.log = [this](const std::string& line) {
      const std::lock_guard<std::mutex> lock(mutex_);
      log_.push_back(line);
    };
    options.timeout = timeout;
    return MakeNativeWorld(options, listeners_[rank]);
  }
  absl::Duration timeout = absl::Seconds(20);
  std::map<int, std::string> secrets;  // of ranks that have another
  std::vector<RankAddress> peers_;
  std::vector<std::string> log() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return log_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> log_;
  std::string root_;
  std::shared_ptr<Tls> tls_;
  std::vector<Fd> listeners_;
};

}  // namespace mslua
