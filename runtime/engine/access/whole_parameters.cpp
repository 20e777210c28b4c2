#include "runtime/engine/access/whole_parameters.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/index.hpp"
#include "parallel/comm/text_exchange.hpp"
#include "runtime/engine/access/owned_states.hpp"
#include "runtime/engine/engine_setup.hpp"
#include "runtime/engine/ops/run_image.hpp"
#include "runtime/engine/ops/step_carry.hpp"
#include "runtime/engine/param_parts.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

// Copies a rank's part into the whole parameter.
void place_part(const ParamSpec& part, const float* from, const at::Tensor& whole) {
  for (const ParamRun& run : runs_of(part, 0, part_elems(part))) {
    std::copy_n(from + run.local, run.elems, host_data<float>(whole) + run.whole);
  }
}

}  // namespace

WholeParameters::WholeParameters(const EngineSetup& setup, OwnedStates& states, StepCarry& carry,
                                 RunImage& image)
    : setup_(setup), states_(states), carry_(carry), image_(image) {}

std::optional<WholeParameters::Place> WholeParameters::place_of(const std::string& name) const {
  const std::vector<GroupPlan>& groups = setup_.plan.groups;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::vector<TensorPlacement>& tensors = groups[g].tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].spec.name == name) return Place{static_cast<int>(g), static_cast<int>(i)};
    }
  }
  return std::nullopt;
}

const ParamSpec& WholeParameters::spec_of(Place place) const {
  return nth(nth(setup_.spec().groups, place.group).params, place.index);
}

// This rank's part of the parameter, from the shards of its data-parallel group.
at::Tensor WholeParameters::gather_part(Place place) {
  const GroupPlan& plan = nth(setup_.plan.groups, place.group);
  const TensorPlacement& tensor = nth(plan.tensors, place.index);
  at::Tensor whole = states_.master(place.group);
  if (!owns_whole_groups(setup_.shape())) {
    const at::Tensor own = whole.to(setup_.device);
    const at::Tensor all = empty_tensor({plan.elems}, c10::ScalarType::Float, setup_.device);
    setup_.data()
        .all_gather({{own.data_ptr(), all.data_ptr(), plan.shard_elems, plan.shard_elems}},
                    DType::kFloat32)
        .wait();
    whole = all.to(c10::DeviceType::CPU);
  }
  return whole.narrow(0, tensor.offset_elems, tensor.elems).view(tensor.spec.shape).clone();
}

// Each element comes from one rank: of the counted replica, with data-parallel coordinate 0. All
// ranks place it where its owner says.
at::Tensor WholeParameters::join_parts(const std::string& name, std::optional<Place> place) {
  Communicator& world = setup_.world();
  const at::Tensor part = place ? gather_part(*place).flatten() : at::Tensor();
  const bool gives =
      place && setup_.data().rank() == 0 && nth(setup_.spec().groups, place->group).counted;
  const std::vector<std::string> layouts =
      exchange_text(world, gives ? encode_part(spec_of(*place)) : std::string());
  std::vector<ParamSpec> parts;
  std::int64_t largest = 0;
  for (const std::string& layout : layouts) {
    parts.push_back(decode_part(name, layout));
    largest = std::max(largest, part_elems(parts.back()));
  }
  const auto any = std::find_if(parts.begin(), parts.end(),
                                [](const ParamSpec& p) { return part_elems(p) > 0; });
  if (any == parts.end()) throw Error("no parameter is named " + name);
  const at::Tensor own = empty_tensor({largest}, c10::ScalarType::Float, setup_.device).zero_();
  if (gives) own.narrow(0, 0, part.numel()).copy_(part);
  const at::Tensor there =
      empty_tensor({world.size() * largest}, c10::ScalarType::Float, setup_.device);
  world.all_gather({{own.data_ptr(), there.data_ptr(), largest, largest}}, DType::kFloat32).wait();
  const at::Tensor all = there.to(c10::DeviceType::CPU);  // the same on a CPU
  const at::Tensor whole = empty_tensor(whole_shape(*any), c10::ScalarType::Float).zero_();
  for (std::size_t r = 0; r < parts.size(); ++r) {
    place_part(parts[r], host_data<float>(all) + static_cast<std::int64_t>(r) * largest, whole);
  }
  return whole;
}

at::Tensor WholeParameters::get(const std::string& name) {
  const std::optional<Place> place = place_of(name);
  if (!setup_.comms.is_plain()) return join_parts(name, place);
  if (!place) throw Error("no parameter is named " + name);
  return gather_part(*place);
}

void WholeParameters::set(const std::string& name, const at::Tensor& value) {
  const std::optional<Place> place = place_of(name);
  const bool anywhere =
      setup_.comms.is_plain() ? place.has_value() : on_any_rank(setup_.world(), place.has_value());
  if (!anywhere) throw Error("no parameter is named " + name);
  image_.withdraw();  // on ranks without a part of the parameter as well
  if (place) set_part(*place, value);
}

// The elements of the parameter that this rank owns.
void WholeParameters::set_part(Place place, const at::Tensor& value) {
  const GroupPlan& plan = nth(setup_.plan.groups, place.group);
  const TensorPlacement& tensor = nth(plan.tensors, place.index);
  const ParamSpec& spec = spec_of(place);
  check(value.numel() == element_count(whole_shape(spec)),
        "a parameter is replaced by one of its size");
  const std::int64_t begin = owned_begin(setup_.shape(), place.group, setup_.data().rank());
  const std::int64_t end = begin + owned_elems(setup_.shape(), place.group);
  const std::int64_t from = std::max(begin, tensor.offset_elems);
  const std::int64_t to = std::min(end, tensor.offset_elems + tensor.elems);
  carry_.parameters_changed(place.group);  // on ranks that own no element of it as well
  if (from >= to) return;
  const at::Tensor flat = value.to(c10::ScalarType::Float).contiguous().flatten();
  const at::Tensor own = empty_tensor({to - from}, c10::ScalarType::Float);
  const std::int64_t first = from - tensor.offset_elems;
  for (const ParamRun& run : runs_of(spec, first, first + (to - from))) {
    own.narrow(0, run.local - first, run.elems).copy_(flat.narrow(0, run.whole, run.elems));
  }
  states_.set_master(place.group, from - begin, own);
}

}  // namespace sluice
