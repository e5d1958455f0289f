// Fashion-MNIST (H. Xiao, K. Rasul, R. Vollgraf, 2017): MNIST's files with pictures of clothes.
#include "core/base/folder.h"
#include "core/data/idx.h"

namespace mslua::data {
namespace {

StatusOr<std::unique_ptr<Reader>> Open(const Fields& fields) {
  return OpenIdx({"FashionMnistDataset",
                  "the four files from https://github.com/zalandoresearch/fashion-mnist",
                  nullptr,
                  {"", "/FashionMNIST/raw", "/raw"}},
                 fields);
}

}  // namespace

MSLUA_SOURCE(fashion_mnist) {
  SourceDef def("fashion_mnist", "FashionMnistDataset");
  def.title = "Fashion-MNIST";
  def.pictures = true;
  def.doc = "Fashion-MNIST's IDX files, plain or .gz: image uint8 [28, 28, 1], label int32 [].";
  def.fields = {PathField("dataset_dir", "folder of train-images-idx3-ubyte and the others"), UsageField()};
  def.open = Open;
  def.fits = IsFolder;
  def.expects = "the files of Fashion-MNIST";
  def.order = 1;  // MNIST's files have the same names: `data ls` takes them for MNIST
  return def;
}

}  // namespace mslua::data
