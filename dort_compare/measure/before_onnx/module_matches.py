"""Which value of the compiled graphs, run by torch's kernels, is held against which result of a module in eager."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import fx

from dort_compare.align.sightings import GraphCall, Made, Sighting
from dort_compare.dtypes import coarsened
from dort_compare.measure.distance.distances import Distance
from dort_compare.measure.noise.floor import noise_floor
from dort_compare.measure.noise.gaps import Gaps
from dort_compare.measure.noise.inherited import Floor, InheritedError, inherited_error
from dort_compare.measure.noise.scatter import Scatter
from dort_compare.trace.eager_modules import EagerValue
from dort_compare.trace.module_calls import Place


@dataclass
class Match:
    """The value that came closest to what eager has at a place.

    ``maker`` is what made it, where Python returned a result of a graph. ``fits`` are the nodes whose values have its
    dtype and shape. Both tensors are kept for as long as the error is not known to be noise, with the ``gaps`` of their
    elements, once scatter is asked.
    """

    error: InheritedError
    run: GraphCall | None
    node: fx.Node | None
    leaf: str | None
    maker: Made | None = None
    fits: set[fx.Node] = field(default_factory=set)
    expected: torch.Tensor | None = None
    value: torch.Tensor | None = None
    gaps: Gaps | None = None

    @property
    def ok(self) -> bool:
        return self.error.is_noise

    def is_at(self, sighting: Sighting) -> bool:
        """Whether another run of the same graphs shows this value there."""
        return sighting.node is self.node and sighting.leaf == self.leaf

    def settle(self, error: InheritedError) -> None:
        """Takes over the error; of one that is noise nothing is kept any more."""
        self.error = error
        if error.is_noise:
            self.expected, self.value, self.gaps = None, None, None


class Matches:
    """Holds every sighting against what ``expected`` has at its places; an output that was found lets go of its tensor.

    ``precision`` is the coarsest dtype that the model computes in.
    """

    def __init__(self, expected: Mapping[Place, EagerValue], precision: torch.dtype | None) -> None:
        self.found: dict[Place, Match] = {}
        self.dtypes = {place: held.value.dtype for place, held in expected.items()}
        self.shapes = {place: held.value.shape for place, held in expected.items()}
        self.written: set[Place] = set()
        self._held = dict(expected)
        self._precision = precision
        self._places: dict[object, list[Place]] = defaultdict(list)
        for place in expected:
            self._places[place.kind, place.call].append(place)

    @property
    def suspects(self) -> dict[Place, Match]:
        """What lies beyond the floor so far."""
        return {place: match for place, match in self.found.items() if not match.ok}

    def see(self, sighting: Sighting) -> None:
        """Measures a sighting at every place where it may belong."""
        for place in self.places(sighting):
            self._try(place, sighting)

    def places(self, sighting: Sighting) -> Iterable[Place]:
        """Where the sighting may belong: the leaf that it names, or those of its call that have its dtype and shape."""
        for place in self._places[sighting.kind, sighting.call]:
            if sighting.leaf == place.leaf or (sighting.leaf is None and self._fits(place, sighting)):
                yield place

    def _fits(self, place: Place, sighting: Sighting) -> bool:
        if (sighting.value.dtype, sighting.value.shape) != (self.dtypes[place], self.shapes[place]):
            return False
        result = self.found.get(Place("output", place.call, place.leaf))
        return sighting.exit is None or result is None or result.node is sighting.exit

    def _try(self, place: Place, sighting: Sighting) -> None:
        before = self.found.get(place)
        if before is not None and before.ok:
            return
        expected = self._held[place].tensor
        if expected is None:
            self.written.add(place)
            return
        match = self._measured(expected, sighting)
        if not match.ok and not sighting.firm:
            return
        match.fits |= before.fits if before else set()
        if match.ok:
            del self._held[place]
        elif before and not _closer(match.error.distance, before.error.distance):
            before.fits = match.fits
            return
        self.found[place] = match

    def _measured(self, expected: torch.Tensor, sighting: Sighting) -> Match:
        match = Match(self._error(expected, sighting.value), sighting.run, sighting.node, sighting.leaf, sighting.maker)
        match.fits = {sighting.node} if sighting.node else set()
        if not match.ok:
            match.expected, match.value = expected, sighting.value.detach()
        return match

    def is_certain(self, place: Place) -> bool:
        """Whether what was held against eager at this place is sure to belong there.

        It is where it is equal to within noise. Otherwise it has to be the only value of its dtype and shape that the
        call gives, but for those that are certain at other places, and the place the only one that asks for it, or
        would if eager had not overwritten what it has there.
        """
        match = self.found[place]
        if match.ok or match.node is None:
            return True
        kind = self.dtypes[place], self.shapes[place]
        others = [p for p in self._places[place.kind, place.call] if (self.dtypes[p], self.shapes[p]) == kind]
        taken = {found.node for p in others if (found := self.found.get(p)) and found.ok}
        asking = [p for p in others if p in self.written or ((found := self.found.get(p)) and not found.ok)]
        return len(asking) == 1 and len(match.fits - taken) == 1

    def forget(self) -> None:
        """Lets go of what was sighted nowhere."""
        self._held.clear()

    def settle(self, scatters: Mapping[Place, Scatter]) -> None:
        """Settles the suspects that right values scatter as far as."""
        for place, match in self.suspects.items():
            scatter, expected, value, error = scatters.get(place, Scatter()), match.expected, match.value, match.error
            if match.gaps is None and expected is not None and value is not None and expected.shape == value.shape:
                match.gaps = error.gaps(expected, value, self._floor(expected))
            allowed = max(error.noise_floor, scatter.floor_of(match.gaps))
            match.settle(replace(error, noise_floor=allowed, is_noise=scatter.covers(error.distance, match.gaps)))

    def settle_within(self, modules: Container[str | None], node: fx.Node, value: torch.Tensor) -> None:
        """Settles the suspects of these modules that a value which the graphs compute there is equal to after all, in
        whatever shape."""
        for place, match in self.suspects.items():
            expected = match.expected
            fits = expected is not None and (value.dtype, value.numel()) == (expected.dtype, expected.numel())
            if expected is not None and fits and place.call.module in modules:
                like = value.reshape(expected.shape)
                found = self._measured(expected, Sighting(place.kind, place.call, like, None, match.run, node))
                if found.ok:
                    self.found[place] = found

    def hold_against_float64(self, place: Place, exact: torch.Tensor) -> None:
        """Settles a suspect whose error is about that of eager itself; others learn both errors."""
        match = self.found.get(place)
        if match is None or match.ok or match.expected is None or match.value is None:
            return
        match.settle(self._error(match.expected, match.value, exact))

    def _error(self, expected: torch.Tensor, value: torch.Tensor, exact: torch.Tensor | None = None) -> InheritedError:
        return inherited_error(expected, value, self._floor(expected), self._coarsest(expected), exact)

    def _floor(self, expected: torch.Tensor) -> Floor:
        return partial(noise_floor, self._coarsest(expected), numel=expected.numel())

    def _coarsest(self, expected: torch.Tensor) -> torch.dtype | None:
        return coarsened(expected.dtype, self._precision)


def _closer(one: Distance, other: Distance) -> bool:
    if (one.finding is None) != (other.finding is None):
        return one.finding is None
    return (one.max_abs or 0) < (other.max_abs or 0)
