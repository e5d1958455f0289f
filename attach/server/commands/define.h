// For the files of this folder: each defines one command. The build finds the file by its name (CONTRIBUTING.md).
#pragma once

#include "attach/server/command.h"

// attach/server/commands/mem.cc:  MSLUA_COMMAND(mem) { CommandDef def("mem", ...); ... return def; }
#define MSLUA_COMMAND(name) CommandDef Command_##name()
