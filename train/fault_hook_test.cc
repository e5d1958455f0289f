#include "train/fault_hook.h"

#include "gtest/gtest.h"

namespace mslua {
namespace {

TEST(Fault, IsParsed) {
  const auto abort = ParseFault("abort@rank=1,step=7"), scribble = ParseFault("scribble@step=12,rank=0");
  ASSERT_TRUE(abort.ok() && scribble.ok());
  EXPECT_EQ(abort->kind, Fault::Kind::kAbort);
  EXPECT_EQ(abort->rank, 1);
  EXPECT_EQ(abort->step, 7);
  EXPECT_EQ(scribble->kind, Fault::Kind::kScribble);
  EXPECT_EQ(scribble->rank, 0);
  EXPECT_EQ(scribble->step, 12);
  for (const char* text : {"", "abort", "abort@", "abort@rank=1", "abort@step=1", "melt@rank=1,step=1",
                           "abort@rank=1,step=0", "abort@rank=-1,step=1", "abort@rank=1,rank=1,step=1",
                           "abort@rank=x,step=1", "abort@rank=1,step=1,", "abort@rank=1,step=1,epoch=1"}) {
    const auto fault = ParseFault(text);
    EXPECT_TRUE(absl::IsInvalidArgument(fault.status())) << text;
  }
}

}  // namespace
}  // namespace mslua
