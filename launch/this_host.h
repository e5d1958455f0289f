// The host that this process runs on: its name, who shares its memory, its cores.
#pragma once

#include <string>

#include "collectives/identity.h"

namespace mslua {

// "vm1".
std::string HostName();
// The same for processes that can hand each other memory (one boot, network, file system and user) and for no others:
// "vm1:3fa2c19e".
std::string HostKey();
// Processors of the host.
int HostCores();

// What a rank's environment is to say about compute threads (R9) and does not yet: its share of the `cores` that
// `ranks` ranks of a host have together, and that waiting threads sleep where ranks x threads exceed them.
Environment ThreadVariables(const Environment& environment, int ranks, int cores);

// The file of the program that runs.
std::string ProgramFile();

// The environment of this process.
Environment OwnEnvironment();

}  // namespace mslua
