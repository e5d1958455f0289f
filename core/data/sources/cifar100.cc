// CIFAR-100.
#include "core/base/folder.h"
#include "core/data/cifar.h"
#include "core/files/token_file.h"

namespace mslua::data {
namespace {

const CifarFlavour& Flavour() {
  static const CifarFlavour flavour{"Cifar100Dataset",
                                    "CIFAR-100 binary version",
                                    nullptr,
                                    {"cifar-100-binary", "cifar-100-python"},
                                    {"train"},
                                    {"test"},
                                    {{"coarse_label", "coarse_labels", 20}, {"fine_label", "fine_labels", 100}}};
  return flavour;
}

// A folder of tokens has a train.bin too, and val.bin where CIFAR-100 has test.bin.
bool Fits(const std::string& path) {
  return IsFolder(path) && !IsFile(path + "/val.bin") && !HasTokenHeader(path + "/train.bin");
}

}  // namespace

MSLUA_SOURCE(cifar100) {
  SourceDef def("cifar100", "Cifar100Dataset");
  def.title = "CIFAR-100";
  def.pictures = true;
  def.doc = "CIFAR-100: image, coarse_label, fine_label.";
  def.fields = {PathField("dataset_dir", "folder of train.bin and test.bin, or of train and test"), UsageField()};
  def.open = [](const Fields& fields) { return OpenCifar(Flavour(), fields); };
  def.fits = Fits;
  def.expects = "the files of CIFAR-100";
  return def;
}

}  // namespace mslua::data
