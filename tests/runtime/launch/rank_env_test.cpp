#include "runtime/launch/rank_env.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <map>

#include "base/error.hpp"
#include "tests/free_port.hpp"

namespace sluice {
namespace {

using Variables = std::map<std::string, std::string>;

GetEnvironment from(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found != variables.end() ? found->second.c_str() : nullptr;
  };
}

const Variables kGood{{"RANK", "5"},
                      {"WORLD_SIZE", "8"},
                      {"LOCAL_RANK", "1"},
                      {"LOCAL_WORLD_SIZE", "4"},
                      {"MASTER_ADDR", "node0"},
                      {"MASTER_PORT", "29500"}};

TEST(RankEnvironment, Complete) {
  const auto environment = rank_environment(from(kGood));
  ASSERT_TRUE(environment);
  EXPECT_EQ(environment->rank, 5);
  EXPECT_EQ(environment->world_size, 8);
  EXPECT_EQ(environment->local_rank, 1);
  EXPECT_EQ(environment->local_world_size, 4);
  EXPECT_EQ(environment->master_addr, "node0");
  EXPECT_EQ(environment->master_port, 29500);
}

TEST(RankEnvironment, NoneOrOnlyTheWishOfALauncher) {
  EXPECT_FALSE(rank_environment(from({})));
  const Variables wish{{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}};
  EXPECT_FALSE(rank_environment(from(wish)));
}

struct Broken {
  const char* name;
  const char* value;  // nullptr: unset
  const char* message;
};

class BrokenEnvironment : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenEnvironment, NamesTheVariable) {
  const auto& [name, value, message] = GetParam();
  Variables variables = kGood;
  variables.erase(name);
  if (value != nullptr) variables[name] = value;
  try {
    (void)rank_environment(from(variables));
    FAIL() << name;
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), message);
  }
}

#define MISSING(name) MISSING_OF(name, "is")
#define MISSING_OF(names, verb)                                                       \
  names " " verb                                                                      \
        " not set, but other variables of a started rank are; set RANK, WORLD_SIZE, " \
        "LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or unset the first four"

INSTANTIATE_TEST_SUITE_P(
    Table, BrokenEnvironment,
    ::testing::Values(
        Broken{"RANK", nullptr, MISSING("RANK")},
        Broken{"WORLD_SIZE", nullptr, MISSING("WORLD_SIZE")},
        Broken{"LOCAL_RANK", nullptr, MISSING("LOCAL_RANK")},
        Broken{"LOCAL_WORLD_SIZE", nullptr, MISSING("LOCAL_WORLD_SIZE")},
        Broken{"MASTER_ADDR", nullptr, MISSING("MASTER_ADDR")},
        Broken{"MASTER_PORT", nullptr, MISSING("MASTER_PORT")},
        Broken{"RANK", "", "RANK='' must be a rank, 0 or more"},
        Broken{"RANK", "1x", "RANK='1x' must be a rank, 0 or more"},
        Broken{"RANK", " 1", "RANK=' 1' must be a rank, 0 or more"},
        Broken{"RANK", "-1", "RANK='-1' must be a rank, 0 or more"},
        Broken{"RANK", "99999999999999", "RANK='99999999999999' must be a rank, 0 or more"},
        Broken{"RANK", "8", "RANK=8 must be below WORLD_SIZE=8"},
        Broken{"WORLD_SIZE", "0", "WORLD_SIZE='0' must be the number of ranks, at least 1"},
        Broken{"LOCAL_RANK", "4", "LOCAL_RANK=4 must be below LOCAL_WORLD_SIZE=4"},
        Broken{"LOCAL_WORLD_SIZE", "9", "LOCAL_WORLD_SIZE=9 must be at most WORLD_SIZE=8"},
        Broken{"MASTER_ADDR", "", "MASTER_ADDR is set but empty; it must name rank 0's host"},
        Broken{"MASTER_PORT", "0", "MASTER_PORT='0' must be a port, 1 to 65535"},
        Broken{"MASTER_PORT", "65536", "MASTER_PORT='65536' must be a port, 1 to 65535"}));

TEST(RankEnvironment, AllMistakesAtOnce) {
  Variables variables = kGood;
  variables["RANK"] = "one";
  variables.erase("MASTER_PORT");
  try {
    (void)rank_environment(from(variables));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()),
              std::string("RANK='one' must be a rank, 0 or more\n") + MISSING("MASTER_PORT"));
  }
}

TEST(RankEnvironment, MissingVariablesAreNamedOnce) {
  try {
    (void)rank_environment(from({{"RANK", "0"}}));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(
        error.what(),
        MISSING_OF("WORLD_SIZE, LOCAL_WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT", "are"));
  }
}

// Listens like a store does; -1 where bind or listen failed.
Descriptor listen_on(int port) {
  Descriptor fd(::socket(AF_INET, SOCK_STREAM, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
  if (::listen(fd.get(), 1) != 0) return {};
  return fd;
}

TEST(Port, IsNotReservedWhileSomebodyListens) {
  const int port = free_port();
  Descriptor listener = listen_on(port);
  ASSERT_TRUE(listener);
  EXPECT_THROW(PortReservation{port}, ConfigError);
  listener.reset();
  EXPECT_EQ(PortReservation{port}.port(), port);
}

TEST(Port, ReservationLetsTheStoreListen) {
  const PortReservation reservation;
  EXPECT_GT(reservation.port(), 0);
  EXPECT_TRUE(listen_on(reservation.port()));
}

}  // namespace
}  // namespace sluice
