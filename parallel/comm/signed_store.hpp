// A c10d store whose values carry a code: HMAC-SHA-256 of key and value under the job's secret. A
// rank that reads a value without a valid code throws, so no rank acts on an address, process
// number or identifier of a stranger. Internal to comm; bridge.
//
// Counters (add) and the existence of keys carry no code. A stranger can delay a job with them, but
// not redirect it. Thread-safe if the underlying store is.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace sluice {

class SignedStore final : public c10d::Store {
 public:
  using Bytes = std::vector<std::uint8_t>;
  using Milliseconds = std::chrono::milliseconds;

  // With an empty secret, ranks that have a secret are still told from ranks without one.
  SignedStore(c10::intrusive_ptr<c10d::Store> store, std::string secret);

  using Store::compareSet;
  using Store::set;
  c10::intrusive_ptr<Store> clone() override;
  void set(const std::string& key, const Bytes& value) override;
  // Both throw CommError if the value's code does not match the job's secret.
  Bytes get(const std::string& key) override;
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override;

  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const Milliseconds& timeout) override;
  const Milliseconds& getTimeout() const noexcept override;
  void setTimeout(const Milliseconds& timeout) override;
  // Without append and multiGet: c10d then uses set and get.
  bool hasExtendedApi() const override { return false; }

 private:
  [[nodiscard]] Bytes with_code(const std::string& key, const Bytes& value) const;
  [[nodiscard]] Bytes without_code(const std::string& key, Bytes value) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string secret_;
};

}  // namespace sluice
