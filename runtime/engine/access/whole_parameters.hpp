// Reads and writes whole parameters by name, over all ranks that hold a part. Exact, but slow: for
// tests and for inspecting a model. Collective over the world.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace sluice {

class OwnedStates;
class RunImage;
class StepCarry;
struct EngineSetup;
struct ParamSpec;

class WholeParameters {
 public:
  WholeParameters(const EngineSetup& setup, OwnedStates& states, StepCarry& carry, RunImage& image);

  // fp32 on the host. Both throw Error if no rank has a parameter of this name.
  [[nodiscard]] at::Tensor get(const std::string& name);
  void set(const std::string& name, const at::Tensor& value);

 private:
  struct Place {
    int group = 0;
    int index = 0;
  };
  [[nodiscard]] std::optional<Place> place_of(const std::string& name) const;
  [[nodiscard]] const ParamSpec& spec_of(Place place) const;
  [[nodiscard]] at::Tensor gather_part(Place place);
  [[nodiscard]] at::Tensor join_parts(const std::string& name, std::optional<Place> place);
  void set_part(Place place, const at::Tensor& value);

  const EngineSetup& setup_;
  OwnedStates& states_;
  StepCarry& carry_;
  RunImage& image_;
};

}  // namespace sluice
