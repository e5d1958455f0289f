// What plans take for devices that are not at hand. The rates are those of NVIDIA's data sheets (SXM versions, dense
// products), of which large products reach about 0.8 and reads and writes of memory about 0.9. A kernel of a captured
// step costs about 2 us beside its work. Links are NVLink's in one direction, of which collectives reach about 0.8;
// to start one takes some 10 us.
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/exit_code.h"
#include "core/base/input_file.h"
#include "core/sharding/search/cluster.h"

namespace mslua {
namespace {

struct Figures {
  const char* name;
  double f32, f64, sixteen_bits;    // data sheet, floating point operations a second
  double bytes_per_second, memory;  // data sheet
  double link;                      // bytes a second to the other devices, in one direction
};

constexpr Figures kFigures[] = {
    {"h200", 67e12, 67e12, 989e12, 4.8e12, 141e9, 450e9},       // NVIDIA H200 Tensor Core GPU, data sheet, 2024
    {"h100", 67e12, 67e12, 989e12, 3.35e12, 80e9, 450e9},       // NVIDIA H100 Tensor Core GPU, data sheet, 2023
    {"a100", 19.5e12, 19.5e12, 312e12, 2.039e12, 80e9, 300e9},  // NVIDIA A100 80GB, data sheet, 2021
    {"b200", 75e12, 37e12, 2250e12, 7.7e12, 180e9, 900e9},  // NVIDIA DGX B200, data sheet, 2024, of one of its eight
};
constexpr double kOfArithmetic = 0.8, kOfMemory = 0.9, kOfLinks = 0.8;
constexpr double kLaunch = 2e-6, kMessage = 10e-6;

}  // namespace

std::string KnownDevices() {
  std::string names;
  for (const Figures& f : kFigures) absl::StrAppend(&names, names.empty() ? "" : "|", f.name);
  return names;
}

StatusOr<std::string> DeviceFiguresText(const std::string& device) {
  if (device == "cuda") {
    auto text = ReadFile(MeasuredDeviceFile(), 1 << 20);
    if (text.ok()) return text;
    return WithExitCode(
        absl::NotFoundError(absl::StrCat("--device cuda: ", MeasuredDeviceFile(),
                                         " is not there: run mslua doctor --calibrate --device cuda on a machine with "
                                         "the device, or name one of ",
                                         KnownDevices())),
        kExitEnvironment);
  }
  for (const Figures& f : kFigures) {
    if (f.name != device) continue;
    const double bytes = f.bytes_per_second * kOfMemory;
    return absl::StrFormat(
        "{\"flops_per_second\": {\"f32\": %g, \"f64\": %g, \"bf16\": %g, \"f16\": %g}, \"bytes_per_second\": %g,\n"
        " \"launch_seconds\": %g, \"memory_bytes\": %g, \"copy_seconds_per_byte\": %g,\n"
        " \"axes\": [{\"seconds\": %g, \"seconds_per_byte\": %g}]}\n",
        f.f32 * kOfArithmetic, f.f64 * kOfArithmetic, f.sixteen_bits * kOfArithmetic, f.sixteen_bits * kOfArithmetic,
        bytes, kLaunch, f.memory, 2 / bytes, kMessage, 1 / (f.link * kOfLinks));
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown device '", device, "': expected ", KnownDevices(), "|cuda"));
}

}  // namespace mslua
