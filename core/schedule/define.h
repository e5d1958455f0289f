// For the files of this folder: each defines one schedule. The build finds the file by its name.
#pragma once

#include "core/schedule/declare/schedule.h"

// core/schedule/step_decay_lr.cc:  MSLUA_SCHEDULE(step_decay_lr) { ScheduleDef def("step_decay_lr"); ... return def; }
#define MSLUA_SCHEDULE(name) ScheduleDef Schedule_##name()
