// mslua cert
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/common_flags.h"
#include "core/base/exit_code.h"
#include "core/json/json_string.h"
#include "rendezvous/tls/make_certificates.h"
#include "verbs/define.h"
#include "verbs/support/report.h"

DEFINE_int64(days, 30, "days of validity; the CA has ten times as many");
DEFINE_string(hosts, "", "names and addresses of hosts where ranks listen, separated by commas");
DEFINE_string(job, "", "job that the certificates are for (default: the name of DIR)");
DEFINE_string(password_file, "", "password of a PKCS#12 file (default: the file `password` beside it)");

namespace mslua {
namespace {

constexpr int64_t kMostDays = 3650;

int Make(const cli::CommandLine& command) {
  CertificateRequest request;
  request.folder = command.positional[1];
  if (command.Given("hosts")) request.hosts = absl::StrSplit(command.String("hosts"), ',', absl::SkipWhitespace());
  if (command.Given("job")) request.job = command.String("job");
  if (command.Int("days") > kMostDays) {
    return Report(absl::InvalidArgumentError(absl::StrCat("--days: expected 1 to ", kMostDays)));
  }
  request.days = static_cast<int>(command.Int("days"));
  bool renewed = false;
  const Status made = MakeCertificates(request, &renewed);
  if (!made.ok()) return Report(WithExitCode(made, absl::IsInvalidArgument(made) ? kExitUsage : kExitSecurity));
  std::printf(
      "made %s: use --tls %s/config.json, or MSLUA_TLS, for each process of the job\n"
      "copy it to the other hosts without ca.key, which signs new certificates\n",
      request.folder.c_str(), request.folder.c_str());
  if (renewed) {
    std::printf(
        "the CA would have expired before them: it has a new certificate, ca.crt, and a new list, crl.pem; every host "
        "needs both\n");
  }
  return kExitOk;
}

void PrintSummary(const CertificateSummary& c, bool json) {
  if (json) {
    std::printf(
        "{\"file\": %s, \"subject\": %s, \"issuer\": %s, \"serial\": %s, \"job\": %s, \"role\": %s, \"hosts\": %s, "
        "\"from\": %s, \"until\": %s, \"expired\": %s, \"revoked\": %s}\n",
        JsonString(c.file).c_str(), JsonString(c.subject).c_str(), JsonString(c.issuer).c_str(),
        JsonString(c.serial).c_str(), JsonString(c.job).c_str(), JsonString(c.role).c_str(),
        JsonString(absl::StrJoin(c.hosts, ",")).c_str(), JsonString(c.from).c_str(), JsonString(c.until).c_str(),
        c.expired ? "true" : "false", c.revoked ? "true" : "false");
    return;
  }
  std::printf("%s  %s  %s to %s%s%s%s%s%s\n", c.file.c_str(), c.subject.c_str(), c.from.c_str(), c.until.c_str(),
              c.job.empty() ? "" : absl::StrCat("  job ", c.job).c_str(),
              c.role.empty() ? "" : absl::StrCat("  role ", c.role).c_str(),
              c.hosts.empty() ? "" : absl::StrCat("  hosts ", absl::StrJoin(c.hosts, ", ")).c_str(),
              c.expired ? "  expired" : "", c.revoked ? "  revoked" : "");
}

int Show(const cli::CommandLine& command) {
  const std::string password_file = command.Given("password-file") ? command.String("password-file") : "";
  const auto all = ShowCertificates(command.positional[1], password_file);
  if (!all.ok()) return Report(all.status(), kExitSecurity);
  for (const CertificateSummary& summary : *all) PrintSummary(summary, command.Bool("json"));
  return kExitOk;
}

int Revoke(const cli::CommandLine& command) {
  const std::string &folder = command.positional[1], &name = command.positional[2];
  const Status revoked = RevokeCertificate(folder, name);
  if (!revoked.ok()) return Report(WithExitCode(revoked, kExitSecurity));
  std::printf("revoked %s: %s/crl.pem lists it; copy that file to every host of the job\n", name.c_str(),
              folder.c_str());
  return kExitOk;
}

int RunCert(const cli::CommandLine& command) {
  const std::string& action = command.positional[0];
  return action == "make" ? Make(command) : action == "show" ? Show(command) : Revoke(command);
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(cert) {
  VerbDef verb;
  verb.name = "cert";
  verb.usage = "ACTION DIR [flags]";
  verb.doc = "certificates for connections between hosts (TLS)";
  verb.flags = {Integer(FLAGS_days, "N", 1).Of({"make"}), Text(FLAGS_hosts, "A,B").Of({"make"}),
                Text(FLAGS_job, "NAME").Of({"make"}), Text(FLAGS_password_file, "FILE").Of({"show"}),
                Json().Of({"show"})};
  verb.actions = {{"make", "DIR", 1, 1}, {"show", "DIR|FILE", 1, 1}, {"revoke", "DIR NAME", 2, 2}};
  verb.examples = {"mslua cert make tls --hosts node-1,10.0.0.2 --job resnet", "mslua cert show tls",
                   "mslua cert revoke tls client.p12"};
  verb.place = 605;
  verb.run = RunCert;
  return verb;
}

}  // namespace mslua::cli
