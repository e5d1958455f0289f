// Lines of attached clients: what parses is a command of the table within its limits, and parses again as it was.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "attach/server/command.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string line(reinterpret_cast<const char*>(data), size);
  if (!line.empty() && line.back() == '\n') line.pop_back();  // files of the corpus are lines
  const auto command = mslua::endpoint::ParseCommand(line);
  if (!command.ok()) {
    if (command.status().message().empty()) std::abort();
    return 0;
  }
  const auto n = static_cast<int>(command->args.size());
  if (command->def == nullptr || n < command->def->min_args || n > command->def->max_args) std::abort();
  const auto again = mslua::endpoint::ParseCommand(command->text);
  if (!again.ok() || again->args != command->args || again->at != command->at) std::abort();
  return 0;
}
