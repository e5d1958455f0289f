// A libcuda.so.1 that only loads modules, and never runs them: what real cuDNN needs to make plans on a machine without
// a device. All other functions say that there is none.
#include <cstring>

namespace {

constexpr int kNoDevice = 100;
int None() { return kNoDevice; }
int Done() { return 0; }
// Of a module or a kernel: an address that nobody follows.
int Handle(void** handle) {
  *handle = reinterpret_cast<void*>(0x1000);
  return 0;
}

using Any = int (*)();
Any Find(const char* name) {
  if (std::strncmp(name, "cuLibrary", 9) != 0 && std::strncmp(name, "cuKernel", 8) != 0) return None;
  if (std::strstr(name, "Unload") != nullptr || std::strstr(name, "Set") != nullptr) return Done;
  return reinterpret_cast<Any>(reinterpret_cast<void*>(Handle));
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return kNoDevice; }
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuGetProcAddress_v2(const char* name, void** function, int, unsigned long long, int* status) {
  *function = std::strcmp(name, "cuInit") == 0                  ? reinterpret_cast<void*>(cuInit)
              : std::strcmp(name, "cuDriverGetVersion") == 0    ? reinterpret_cast<void*>(cuDriverGetVersion)
              : std::strncmp(name, "cuGetProcAddress", 16) == 0 ? reinterpret_cast<void*>(cuGetProcAddress_v2)
                                                                : reinterpret_cast<void*>(Find(name));
  if (status != nullptr) *status = 0;
  return 0;
}
int cuGetProcAddress(const char* name, void** function, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}

int cuLibraryLoadData(void** library) { return Handle(library); }
int cuLibraryGetKernel(void** kernel) { return Handle(kernel); }
int cuKernelGetFunction(void** function) { return Handle(function); }
int cuLibraryUnload() { return 0; }
int cuKernelSetAttribute() { return 0; }

#define NONE(name) \
  int name() { return kNoDevice; }
NONE(cuCtxGetCurrent)
NONE(cuCtxGetLimit)
NONE(cuCtxPopCurrent)
NONE(cuCtxPushCurrent)
NONE(cuDeviceGet)
NONE(cuDeviceGetCount)
NONE(cuGetErrorName)
NONE(cuGetErrorString)
NONE(cuKernelGetAttribute)
NONE(cuLaunchCooperativeKernel)
NONE(cuLaunchKernel)
NONE(cuLaunchKernelEx)
NONE(cuLibraryLoadFromFile)
NONE(cuLinkAddData)
NONE(cuLinkComplete)
NONE(cuLinkCreate)
NONE(cuLinkDestroy)
NONE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
NONE(cuOccupancyMaxActiveClusters)
NONE(cuOccupancyMaxPotentialClusterSize)
NONE(cuStreamGetCtx)

}  // extern "C"
