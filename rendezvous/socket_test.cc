#include "rendezvous/socket.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <thread>

#include "core/base/clock.h"
#include "rendezvous/local_meeting.h"

namespace {

// Of names that end in ".test": their addresses, and how often they cannot be resolved before. The family of an address
// "-" is one that no system has.
struct Name {
  std::vector<std::string> addresses;
  int failures = 0, error = EAI_AGAIN;
};
std::map<std::string, Name> names;

}  // namespace

// In place of the C library's, which it calls.
extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints, addrinfo** found) {
  static const auto real = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const auto name = names.find(host);
  if (name == names.end()) return real(host, port, hints, found);
  if (name->second.failures > 0) return --name->second.failures, name->second.error;
  addrinfo** next = found;
  for (const std::string& address : name->second.addresses) {
    if (const int error = real(address == "-" ? "127.0.0.1" : address.c_str(), port, hints, next); error != 0)
      return error;
    if (address == "-") (*next)->ai_family = AF_MAX + 1;
    next = &(*next)->ai_next;
  }
  return 0;
}

namespace mslua {
namespace {

using ::testing::HasSubstr;
MonotonicTime Soon(int milliseconds = 2000) { return MonotonicNow() + absl::Milliseconds(milliseconds); }

class SocketFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/mslua-test-XXXXXX";
    root_ = mkdtemp(path);
    setenv("XDG_RUNTIME_DIR", root_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("XDG_RUNTIME_DIR");
    std::filesystem::remove_all(root_);
  }
  std::string root_;
};

TEST_F(SocketFolder, IsPrivate) {
  auto folder = MakeSocketFolder("job-1");
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(*folder, root_ + "/mslua/job-1");
  struct stat info;
  ASSERT_EQ(stat(folder->c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_EQ(*MakeSocketFolder("job-1"), *folder);  // again

  ASSERT_EQ(chmod(folder->c_str(), 0755), 0);
  EXPECT_EQ(MakeSocketFolder("job-1").status().code(), absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(symlink(root_.c_str(), (root_ + "/mslua/link").c_str()), 0);
  EXPECT_EQ(MakeSocketFolder("link").status().code(), absl::StatusCode::kPermissionDenied);
  for (const char* bad : {"", "../x", "a b", "0123456789012345678901234567890123456789"}) {
    EXPECT_EQ(MakeSocketFolder(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST_F(SocketFolder, IsRemovedWithItsSockets) {
  RemoveSocketFolder("job-2");  // is not there
  const auto folder = MakeSocketFolder("job-2");
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto socket = ListenUnix(*folder + "/r0.1");
  ASSERT_TRUE(socket.ok()) << socket.status();
  RemoveSocketFolder("job-2");
  EXPECT_NE(access(folder->c_str(), F_OK), 0);
}

TEST_F(SocketFolder, WithoutRuntimeDirectory) {
  unsetenv("XDG_RUNTIME_DIR");
  setenv("TMPDIR", root_.c_str(), 1);
  auto folder = MakeSocketFolder("j");
  unsetenv("TMPDIR");
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(*folder, root_ + "/mslua-" + std::to_string(geteuid()) + "/j");
}

TEST_F(SocketFolder, LongPathsArePassedOver) {
  const std::string far = root_ + "/" + std::string(60, 'x');
  ASSERT_EQ(mkdir(far.c_str(), 0700), 0);
  setenv("XDG_RUNTIME_DIR", far.c_str(), 1);
  setenv("TMPDIR", far.c_str(), 1);
  EXPECT_EQ(*SocketRoot(), "/tmp/mslua-" + std::to_string(geteuid()));
  setenv("TMPDIR", root_.c_str(), 1);
  EXPECT_EQ(*SocketRoot(), root_ + "/mslua-" + std::to_string(geteuid()));
  unsetenv("TMPDIR");
}

TEST_F(SocketFolder, ATemporaryFolderThatIsNotThereIsPassedOver) {
  unsetenv("XDG_RUNTIME_DIR");
  setenv("TMPDIR", (root_ + "/none").c_str(), 1);
  EXPECT_EQ(*SocketRoot(), "/tmp/mslua-" + std::to_string(geteuid()));
  // One that cannot be written, for those who may not write everywhere.
  const std::string closed = root_ + "/closed";
  ASSERT_EQ(mkdir(closed.c_str(), 0500), 0);
  setenv("TMPDIR", closed.c_str(), 1);
  if (geteuid() != 0) {
    EXPECT_EQ(*SocketRoot(), "/tmp/mslua-" + std::to_string(geteuid()));
  }
  // Where it has been made before it is used.
  setenv("TMPDIR", root_.c_str(), 1);
  EXPECT_EQ(*SocketRoot(), root_ + "/mslua-" + std::to_string(geteuid()));
  unsetenv("TMPDIR");
}

TEST_F(SocketFolder, AFolderOfAnotherUserIsPassedOver) {
  const std::string squatted = root_ + "/mslua-" + std::to_string(geteuid());
  setenv("TMPDIR", root_.c_str(), 1);
  unsetenv("XDG_RUNTIME_DIR");
  ASSERT_EQ(mkdir(squatted.c_str(), 0700), 0);
  EXPECT_EQ(*SocketRoot(), squatted);
  if (chown(squatted.c_str(), 65534, 65534) != 0) {
    unsetenv("TMPDIR");
    GTEST_SKIP() << "this user cannot make a folder of another user";
  }
  EXPECT_NE(*SocketRoot(), squatted);
  EXPECT_TRUE(MakeSocketFolder("squatted").ok());
  RemoveSocketFolder("squatted");
  // A symbolic link of another user is no better.
  ASSERT_EQ(rmdir(squatted.c_str()), 0);
  ASSERT_EQ(symlink("/root", squatted.c_str()), 0);
  ASSERT_EQ(lchown(squatted.c_str(), 65534, 65534), 0);
  EXPECT_NE(*SocketRoot(), squatted);
  unsetenv("TMPDIR");
}

TEST_F(SocketFolder, ARuntimeDirectoryThatOthersCanWriteIsPassedOver) {
  ASSERT_EQ(chmod(root_.c_str(), 0777), 0);
  EXPECT_NE(*SocketRoot(), root_ + "/mslua");
  ASSERT_EQ(chmod(root_.c_str(), 0700), 0);
  EXPECT_EQ(*SocketRoot(), root_ + "/mslua");
}

TEST_F(SocketFolder, AStoppedPeerCannotRun) {
  auto listener = ListenUnix(root_ + "/s");
  ASSERT_TRUE(listener.ok()) << listener.status();
  const pid_t child = fork();
  if (child == 0) {
    const auto connected = ConnectUnix(root_ + "/s", Soon());
    while (connected.ok()) pause();
    _exit(1);
  }
  auto peer = AcceptUnix(*listener, Soon());
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_TRUE(PeerCanRun(*peer));
  int status = 0;
  kill(child, SIGSTOP);
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  EXPECT_FALSE(PeerCanRun(*peer));
  kill(child, SIGCONT);
  ASSERT_EQ(waitpid(child, &status, WCONTINUED), child);
  EXPECT_TRUE(PeerCanRun(*peer));
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(PeerCanRun(*peer));
  auto own = ConnectUnix(root_ + "/s", Soon());
  ASSERT_TRUE(own.ok());
  EXPECT_FALSE(PeerCanRun(*own)) << "this process itself";
}

TEST_F(SocketFolder, PacketsCarryDescriptors) {
  const std::string path = root_ + "/s";
  EXPECT_EQ(ConnectUnix(path, Soon(30)).status().code(), absl::StatusCode::kDeadlineExceeded);
  auto listener = ListenUnix(path);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_EQ(AcceptUnix(*listener, Soon(20)).status().code(), absl::StatusCode::kDeadlineExceeded);
  auto one = ConnectUnix(path, Soon());
  auto other = AcceptUnix(*listener, Soon());
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(PeerPid(*one), getpid());
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  ASSERT_TRUE(SendPacket(*one, "first", pipe_ends[0]).ok());
  ASSERT_TRUE(SendPacket(*one, "second").ok());
  auto first = ReceivePacket(*other, Soon());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->bytes, "first");
  ASSERT_TRUE(first->descriptor);
  ASSERT_EQ(write(pipe_ends[1], "x", 1), 1);
  char byte;
  EXPECT_EQ(read(first->descriptor.get(), &byte, 1), 1);
  EXPECT_FALSE(PeerClosed(*other));
  one->Close();
  EXPECT_FALSE(PeerClosed(*other));  // something is left to read
  auto second = ReceivePacket(*other, Soon());
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->bytes, "second");
  EXPECT_FALSE(second->descriptor);
  EXPECT_TRUE(PeerClosed(*other));
  EXPECT_EQ(ReceivePacket(*other, Soon()).status().code(), absl::StatusCode::kUnavailable);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST(Tcp, ConnectsAndNotices) {
  auto listener = ListenTcp({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok()) << listener.status();
  const Endpoint at = *LocalEndpoint(*listener);
  EXPECT_EQ(at.host, "127.0.0.1");
  EXPECT_EQ(ListenTcp(at).status().code(), absl::StatusCode::kAlreadyExists);
  auto one = ConnectTcp(at, Soon());
  ASSERT_TRUE(PollFor(*listener, POLLIN, Soon()).ok());
  const Fd other(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(one.ok() && other && SetTcpOptions(other).ok());
  const std::string big(3 << 20, 'y');
  std::thread sender([&] { EXPECT_TRUE(SendAll(*one, big, Soon()).ok()); });
  std::string got(big.size(), ' ');
  EXPECT_TRUE(ReceiveAll(other, &got[0], got.size(), Soon()).ok());
  sender.join();
  EXPECT_EQ(got, big);
  EXPECT_EQ(ReceiveAll(other, &got[0], 1, Soon(20)).code(), absl::StatusCode::kDeadlineExceeded);
  one->Close();
  EXPECT_EQ(ReceiveAll(other, &got[0], 1, Soon()).code(), absl::StatusCode::kUnavailable);
  listener->Close();
  EXPECT_EQ(ConnectTcp(at, Soon(30)).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ConnectTcp({"no.such.host.invalid", 1}, Soon(30)).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(Tcp, TriesAllAddressesOfAName) {
  auto listener = ListenTcp({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok()) << listener.status();
  const Endpoint at = {"several.test", LocalEndpoint(*listener)->port};
  names[at.host] = {{"-", "127.0.0.2", "127.0.0.1"}};
  const auto connected = ConnectTcp(at, Soon());
  EXPECT_TRUE(connected.ok()) << connected.status();
  EXPECT_EQ(*AddressTowards(at), "127.0.0.1");
  // 192.0.2.1 is an address of no host.
  names["own.test"] = {{"-", "192.0.2.1", "127.0.0.1"}};
  listener = ListenTcp({"own.test", 0});
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_EQ(LocalEndpoint(*listener)->host, "127.0.0.1");
  EXPECT_TRUE(IsOwnAddress("own.test"));
  // Another job's workers may look for their scheduler where the port is held.
  names["own.test"] = {{"127.0.0.1", "127.0.0.2"}};
  EXPECT_EQ(ListenTcp({"own.test", LocalEndpoint(*listener)->port}).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST(Tcp, ANameMayBeKnownLater) {
  const auto listener = ListenTcp({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok()) << listener.status();
  const Endpoint at = {"later.test", LocalEndpoint(*listener)->port};
  for (const int error : {EAI_AGAIN, EAI_NONAME}) {
    names[at.host] = {{"127.0.0.1"}, 2, error};
    const auto connected = ConnectTcp(at, Soon(10000));
    EXPECT_TRUE(connected.ok()) << connected.status();
    names[at.host].failures = 8;
    std::vector<std::string> news;
    EXPECT_TRUE(AwaitName(at, Soon(20000), [&](const std::string& line) { news.push_back(line); }).ok());
    ASSERT_EQ(news.size(), 1u);
    EXPECT_THAT(news[0], HasSubstr("waiting: address 'later.test' cannot be resolved: "));
    EXPECT_THAT(news[0], HasSubstr("trying for another 1"));
  }
  names[at.host].failures = 1000;
  Status late = ConnectTcp(at, Soon(30)).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.message()), HasSubstr("later.test"));
  late = AwaitName(at, Soon(1100), nullptr);
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.message()), HasSubstr("'later.test' cannot be resolved: "));
  EXPECT_THAT(std::string(late.message()), HasSubstr("within 1s"));
}

TEST(Endpoints, Parse) {
  EXPECT_EQ(ToString(*ParseEndpoint("127.0.0.1:80")), "127.0.0.1:80");
  EXPECT_EQ(ToString(*ParseEndpoint("[::1]:65535")), "[::1]:65535");
  EXPECT_EQ(ParseEndpoint("host:0")->host, "host");
  EXPECT_EQ(ToString(*ParseEndpoint("/run/a:b")), "/run/a:b");
  for (const char* bad : {"", ":", "host", "host:", ":80", "host:65536", "host:-1", "host:8o", "::1:80", "[]:1"}) {
    EXPECT_FALSE(ParseEndpoint(bad).ok()) << bad;
  }
}

TEST(Interfaces, ByNameAndSubnet) {
  EXPECT_EQ(*InterfaceAddress("lo"), "127.0.0.1");
  EXPECT_EQ(*InterfaceAddress("127.0.0.0/8"), "127.0.0.1");
  EXPECT_THAT(std::string(InterfaceAddress("nope0").status().message()), HasSubstr("lo (127.0.0.1)"));
  for (const char* bad : {"1.2.3/8", "10.0.0.0/33", "x/8", "10.0.0.0/"}) {
    EXPECT_EQ(InterfaceAddress(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(Socket, HostsAreReachedInASubnetThatTheyShare) {
  const std::vector<std::string> mine = {"172.17.0.1/16", "10.77.0.1/24"};
  // The first is every host's own bridge, say; the second is what they have in common.
  EXPECT_EQ(*CommonAddress(mine, {{"192.168.3.2/24", "10.77.0.2/24"}, {"10.77.0.3/24"}}), "10.77.0.1");
  EXPECT_EQ(*CommonAddress(mine, {{"172.17.0.9/16"}}), "172.17.0.1");
  // Across routers there is none: the address of the default route.
  EXPECT_EQ(*CommonAddress(mine, {{"10.78.0.2/24"}}), "172.17.0.1");
  EXPECT_EQ(*CommonAddress(mine, {}), "172.17.0.1");
  EXPECT_EQ(*CommonAddress({"10.0.0.1/32", "10.0.1.1/0"}, {{"8.8.8.8/8"}}), "10.0.1.1");
  EXPECT_EQ(CommonAddress({}, {}).status().code(), absl::StatusCode::kNotFound);
  // What another host sent is outside bytes.
  for (const char* text : {"", "/", "10.77.0.2", "10.77.0.2/33", "10.77.0.2/-1", "x/24", "10.77.0.2/24/1"})
    EXPECT_EQ(*CommonAddress(mine, {std::vector<std::string>{text}}), "172.17.0.1") << text;
}

TEST(Socket, OwnAddressesAreNotThoseOfLoopback) {
  const auto all = OwnAddresses();
  ASSERT_TRUE(all.ok()) << all.status();
  for (const std::string& address : *all) EXPECT_NE(address.rfind("127.", 0), 0u) << address;
}

}  // namespace
}  // namespace mslua
