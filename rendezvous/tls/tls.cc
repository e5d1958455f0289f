#include "rendezvous/tls/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>

#include <atomic>
#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/exit_code.h"
#include "rendezvous/tls/material.h"
#include "rendezvous/tls/openssl.h"

namespace mslua {
namespace {

constexpr absl::Duration kLookEvery = absl::Seconds(1), kWarnEvery = absl::Hours(24);

// The sessions that both ends have accepted, for as long as they live.
class LiveSessions {
 public:
  // Why the session may not take part, or "". Its handshake may have begun before the newest lists were there.
  std::string Add(TlsSession* session) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (newest_ != nullptr) {
      std::string revoked = Revoked(*session);
      if (!revoked.empty()) return revoked;
    }
    sessions_.insert(session);
    return "";
  }
  void Remove(TlsSession* session) {
    const std::lock_guard<std::mutex> lock(mutex_);
    sessions_.erase(session);
  }
  // From now on the lists of `newest` hold.
  void BreakRevoked(std::shared_ptr<const TlsMaterial> newest) {
    const std::lock_guard<std::mutex> lock(mutex_);
    newest_ = std::move(newest);
    for (TlsSession* const session : sessions_) {
      const std::string revoked = Revoked(*session);
      if (!revoked.empty()) session->BreakAndWake(absl::PermissionDeniedError(revoked));
    }
  }

 private:
  std::string Revoked(const TlsSession& session) const {
    X509* const peer = SSL_get0_peer_certificate(session.ssl());
    if (peer == nullptr || !IsRevoked(peer, newest_->crls)) return "";
    return absl::StrCat("certificate \"", NameText(X509_get_subject_name(peer)), "\" has been revoked (crl_path)");
  }

  std::mutex mutex_;
  std::set<TlsSession*> sessions_;
  std::shared_ptr<const TlsMaterial> newest_;  // null: no file has changed
};

bool IsAddress(const std::string& host) {
  char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 || inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

class TlsOfFiles : public Tls {
 public:
  TlsOfFiles(TlsOptions options, std::shared_ptr<const TlsMaterial> material)
      : options_(std::move(options)), material_(std::move(material)), looked_(MonotonicNow()) {
    for (const std::string& warning : material_->warnings) Warn(warning);
    WarnOfExpiry();
  }

  StatusOr<std::unique_ptr<TlsSession>> Dial(int fd, const std::string& host) override {
    return Make(fd, host, PeerIs::kMember, false);
  }
  StatusOr<std::unique_ptr<TlsSession>> Accept(int fd, PeerIs peer) override { return Make(fd, "", peer, true); }

  void Refresh() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const MonotonicTime now = MonotonicNow();
    if (now - looked_ < kLookEvery) return;
    looked_ = now;
    if (now - warned_ >= kWarnEvery) WarnOfExpiry();
    if (!material_->files.Changed()) return;
    auto loaded = LoadTlsMaterial(options_, true);
    if (!loaded.ok()) {
      const std::string why(loaded.status().message());
      if (std::exchange(bad_, why) != why) Warn(absl::StrCat("the changed TLS files are not used: ", why));
      return;
    }
    bad_.clear();
    material_ = std::move(*loaded);
    for (const std::string& warning : material_->warnings) Warn(warning);
    WarnOfExpiry();
    live_->BreakRevoked(material_);
  }

 private:
  void Warn(const std::string& what) const {
    if (options_.log) options_.log(absl::StrCat("warning: ", what));
  }

  void WarnOfExpiry() {
    warned_ = MonotonicNow();
    const int limit = material_->config.cert_expire_warning_time_in_day;
    for (const TlsMaterial::Expiry& e : material_->Expiries()) {
      if (limit == 0 || e.days >= limit) continue;
      if (e.days < 0)
        Warn(absl::StrCat(e.what, ": the certificate has expired on ", e.date));
      else
        Warn(absl::StrCat(e.what, ": the certificate expires on ", e.date, ", in ", e.days,
                          e.days == 1 ? " day" : " days"));
    }
  }

  StatusOr<std::unique_ptr<TlsSession>> Make(int fd, const std::string& host, PeerIs peer, bool accepts) {
    Refresh();
    std::unique_lock<std::mutex> lock(mutex_);
    const std::shared_ptr<const TlsMaterial> material = material_;
    lock.unlock();
    SslPtr ssl(SSL_new((accepts ? material->accepting : material->dialling).get()));
    if (ssl == nullptr) return absl::ResourceExhaustedError(absl::StrCat("TLS: ", TakeOpensslError()));
    if (accepts) {
      SSL_set_accept_state(ssl.get());
    } else {
      SSL_set_connect_state(ssl.get());
      if (!IsAddress(host)) SSL_set_tlsext_host_name(ssl.get(), host.c_str());
    }
    const auto verdict = [this_log = options_.log, told = told_unnamed_, material, host, peer, accepts,
                          live = live_](TlsSession& session) -> std::string {
      X509* const certificate = SSL_get0_peer_certificate(session.ssl());
      Meeting meeting = {accepts ? material->accepting_names : material->dialling_names,
                         NamesOf(certificate),
                         material->config.verify,
                         peer,
                         host,
                         certificate};
      bool unnamed = false;
      std::string refusal = Refusal(meeting, &unnamed);
      if (refusal.empty()) refusal = live->Add(&session);
      if (unnamed && this_log && !told->exchange(true)) {
        this_log(
            "warning: the job's certificates name neither a job nor a host: any certificate of the CA may take part");
      }
      return refusal;
    };
    return std::make_unique<TlsSession>(ssl.release(), fd, verdict,
                                        [live = live_](TlsSession& session) { live->Remove(&session); });
  }

  const TlsOptions options_;
  const std::shared_ptr<LiveSessions> live_ = std::make_shared<LiveSessions>();
  const std::shared_ptr<std::atomic<bool>> told_unnamed_ = std::make_shared<std::atomic<bool>>(false);
  std::mutex mutex_;  // of what follows
  std::shared_ptr<const TlsMaterial> material_;
  MonotonicTime looked_, warned_;
  std::string bad_;  // what is wrong with the files that are there now, if anything is
};

}  // namespace

StatusOr<std::shared_ptr<Tls>> Tls::Load(const TlsOptions& options) {
  auto material = LoadTlsMaterial(options);
  if (!material.ok()) return WithExitCode(material.status(), kExitSecurity);
  return std::shared_ptr<Tls>(std::make_shared<TlsOfFiles>(options, std::move(*material)));
}

}  // namespace mslua
