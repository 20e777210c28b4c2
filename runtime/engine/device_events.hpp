// Times of a GPU's work, by events that streams record. No function but wait() blocks the host.
// Errors: functions throw Error with the action and the cause.
#pragma once

#include <memory>
#include <optional>

namespace sluice {

// One thread at a time.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // The calling thread's stream records the event behind its work so far. In a graph that the
  // stream records (device_graphs.hpp), the event becomes a node: each launch records the event,
  // which must outlive the graph.
  virtual void record() = 0;
  // Milliseconds from `base` to this event; empty until both have been recorded and have completed.
  [[nodiscard]] virtual std::optional<double> ms_after(const DeviceEvent& base) const = 0;
  // Blocks the host until the event has completed.
  virtual void wait() = 0;
};

class DeviceEvents {
 public:
  virtual ~DeviceEvents() = default;
  [[nodiscard]] virtual std::unique_ptr<DeviceEvent> make() = 0;
  // Until leave_calls(), calls of communicators on the calling thread record `begin` before their
  // first message and `end` behind their last, on the stream that runs the messages.
  virtual void follow_calls(DeviceEvent& begin, DeviceEvent& end) = 0;
  // Returns whether there was a call.
  virtual bool leave_calls() noexcept = 0;
};

}  // namespace sluice
