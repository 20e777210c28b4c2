// A c10d store whose values carry a code (HMAC-SHA-256) of key and value, made with the job's
// secret. A value that somebody without the secret wrote is an error of the rank that reads it, so
// no address, process number or identifier of a stranger is acted upon. Internal to comm; bridge.
//
// Counters (add) and the existence of keys carry no code: they can delay a job, not direct it.
// Thread-safe where the store below is.
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

  // An empty secret still tells ranks that have one from ranks that do not.
  SignedStore(c10::intrusive_ptr<c10d::Store> store, std::string secret);

  using Store::compareSet;
  using Store::set;
  c10::intrusive_ptr<Store> clone() override;
  void set(const std::string& key, const Bytes& value) override;
  // Both throw CommError where the value's code is not this job's.
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
