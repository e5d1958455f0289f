// mslua report
#include "verbs/support/report.h"

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "core/base/printable.h"
#include "verbs/define.h"
#include "verbs/support/run_page.h"
#include "verbs/support/run_record.h"

DEFINE_string(report_file, "", "the page to write");

namespace mslua {
namespace {

Status WriteReport(const cli::CommandLine& command) {
  if (!command.Given("o"))
    return absl::InvalidArgumentError("report: expected a file to write: mslua report RUN ... -o FILE.html");
  ASSIGN_OR_RETURN(const std::vector<RunRecord> records, ReadRunRecords(command.positional));
  const std::string file = command.String("o");
  if (!absl::EndsWith(file, ".html") && !absl::EndsWith(file, ".htm"))
    return absl::InvalidArgumentError(absl::StrCat("report: expected a file that ends in .html, got '", file, "'"));
  RETURN_IF_ERROR(WriteFileAtomically(file, RunPage(records)));
  std::fprintf(stderr, "mslua: wrote %s\n", Printable(file).c_str());
  return absl::OkStatus();
}

int RunReport(const cli::CommandLine& command) { return Report(WriteReport(command)); }

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(report) {
  VerbDef verb;
  verb.name = "report";
  verb.usage = "RUN ... -o FILE.html";
  verb.doc = "an HTML page about runs, without a network: curves, settings, differences";
  verb.min_positional = 1;
  verb.max_positional = kUnlimited;
  verb.flags = {Text(FLAGS_report_file, "FILE.html").As("o")};
  verb.examples = {"mslua report last -o report.html", "mslua report runs/b runs/c -o compare.html",
                   "mslua report runs/a -o a.html"};
  verb.place = 405;
  verb.run = RunReport;
  return verb;
}

}  // namespace mslua::cli
