"""Runs one case in many ways and says the first difference."""

from __future__ import annotations

import gc
import json
import time
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
from fuzz_case import Case
from fuzz_compare import compare, shown
from fuzz_data import forget_folders
from fuzz_ways import (
    REFERENCE,
    Broken,
    Different,
    Effort,
    Outcome,
    Way,
    check_causes,
    left_behind,
    lengths,
    options,
    run,
)
from fuzz_worlds import Worlds

import silva as sv

State = tuple[int, int]
"""(epoch, batches given)."""
STATES = 5
"""States that a case is restored from."""


def check(case: Case, effort: Effort) -> None:
    """Raises `Different` where two ways disagree."""
    chance = Random(case.seed * 2 + 1)
    forget_folders()
    try:
        if (said := _refusal(case)) is not None:
            _check_refused_again(case, said)
        elif case.refused:
            _check_refused(case, chance, effort)
        else:
            _Check(case, chance, effort).all()
    except Broken as error:
        raise Different("broken", str(error)) from None
    finally:
        forget_folders()
    if not effort.ray:  # a cluster's own processes stay
        _check_nothing_left()


def _check_nothing_left() -> None:
    deadline = time.monotonic() + 5
    while found := left_behind():
        gc.collect()
        if time.monotonic() > deadline:
            raise Different("left behind", f"left behind: {found}")


def _refusal(case: Case) -> str | None:
    """Why the pipeline cannot even be written, if silva says so: `map_rows` without `into` runs the
    first row, and some verbs are refused after others."""
    try:
        case.build()
    except sv.SilvaError as error:
        check_causes(error)
        return str(error)
    return None


def _check_refused_again(case: Case, said: str) -> None:
    """A refusal does not depend on what was built before."""
    again = _refusal(case)
    if again != said:
        raise Different("refusal", f"refused with {said!r} when built first, then with {again!r}")


def _check_refused(case: Case, chance: Random, effort: Effort) -> None:
    ways = [Way(), Way(sizes=(1, 5)), Way("threads", 2), REFERENCE]
    if chance.random() < 4 * effort.processes:
        ways.append(Way("processes", 1))
    for way in ways:
        effort.runs += 1
        found = run(case.build(), way, **options(case))
        if found.error is None or "neighbours" not in str(found.error):
            raise Different(
                "refused", f"{way}: a function that looks at its neighbours passed: {found.error}"
            )


class _Check:
    def __init__(self, case: Case, chance: Random, effort: Effort) -> None:
        self.case, self.chance, self.effort = case, chance, effort
        self.pipeline = case.build()
        self._counts = case.policy != "'raise'"
        """Whether rows that fail are counted."""
        self._references: dict[tuple[str, Way], Outcome] = {}

    def all(self) -> None:
        self.reference = self._reference(self.case.policy)
        self._check_batches()
        self._check_weights()
        for way in self._ways():
            epochs = 2 if way.writes or self.chance.random() < 0.3 else 1
            small = way == Way(sizes=(1,))
            found = self.run(way, epochs=epochs, states=small and self._counts)
            if way.plan == "as is" and found.error is not None and found.error[0] == "PlanError":
                continue  # of steps that are not run, once what nobody reads is dropped
            self._compare(found, way, self.case.policy, str(way), epochs)
            self._compare_counts(found, way)
        self._restore(self.reference, "", self.case.policy)
        if self.chance.random() < 0.5:
            self._states_of_another()
        if "fails" in self.case.traits:
            self._other_policies()
        if self.case.shards is not None:
            self._worlds()

    def run(self, way: Way, policy: str | None = None, **more: Any) -> Outcome:
        self.effort.runs += 1
        pipeline = self.pipeline if self.chance.random() < 0.7 else self.case.build()
        return run(pipeline, way, **options(self.case, policy), **more)

    def _reference(self, policy: str, way: Way = REFERENCE) -> Outcome:
        """What others are compared with."""
        if (policy, way) not in self._references:
            found = self.run(way, policy, epochs=2, states=True)
            self._references[policy, way] = found
        return self._references[policy, way]

    def _compare(
        self, found: Outcome, way: Way, policy: str, how: str, epochs: int, after: State = (0, 0)
    ) -> None:
        """Where the first row that fails ends the stream, a plan with other filters before a step
        may get further than the plan as written: rows that are gone do not fail."""
        expected, gets_further = self._reference(policy), False
        drops = any(word in self.case.text for word in (".filter(", ".split(", "'inner'"))
        if policy == "'raise'" and expected.error is not None and drops and way.plan != "written":
            gets_further = way.plan != "optimised"
            if not gets_further:
                optimised = self._reference(policy, Way())
                compare(expected, optimised, str(Way()), 2, as_far_as_both=True)
                expected = optimised
        restored = after != (0, 0)
        what = "way"
        if restored:
            what = f"restored by {'another' if policy != self.case.policy else 'the same'} policy"
            if after[0] < len(expected.epochs) and after[1] > len(expected.epochs[after[0]]):
                return  # it was saved further on
            expected = expected.rest(*after)
        compare(expected, found, how, epochs, what, restored=restored, as_far_as_both=gets_further)

    def _check_batches(self) -> None:
        if "after" in self.case.traits or "collate" in self.case.text:
            return
        if ".batch(" in self.case.text or ".bucket(" in self.case.text:
            for batch in (b for epoch in self.reference.batches for b in epoch):
                if len(lengths(batch)) > 1:
                    raise Different("lengths", f"columns of different lengths: {batch}")

    def _check_weights(self) -> None:
        """No row of weight 0 is drawn: every way could give weights to the wrong rows alike."""
        for batch in (b for epoch in self.reference.batches for b in epoch):
            if isinstance(batch, dict) and not np.all(batch.get("weight", 1)):
                raise Different("weights", f"a row of weight 0 was drawn: {shown(batch)}")

    # Ways to run.

    def _sizes(self) -> tuple[int, ...]:
        return self.chance.choice(((), (1,), (2,), (3, 1, 7), (1, 5), (1000,), (4,)))

    def _ways(self) -> list[Way]:
        chance = self.chance
        ways = [
            Way(),
            Way(sizes=(1,)),
            Way(sizes=chance.choice(((3, 1, 7), (2,), (1, 5)))),
            Way(plan="replanned", seed=chance.randrange(100)),
            Way(plan="replanned", seed=chance.randrange(100), sizes=self._sizes()),
            Way(plan="some", seed=chance.randrange(100), sizes=self._sizes()),
            Way("threads", chance.choice((1, 2, 3)), sizes=self._sizes()),
        ]
        ways.insert(chance.randrange(len(ways)), Way(plan="optimised", writes=True))
        if "fails" not in self.case.traits:
            ways.append(Way(plan="as is"))
        if chance.random() < self.effort.processes:
            ways.append(Way("processes", 2, sizes=self._sizes()))
        if chance.random() < self.effort.processes / 10:
            ways.append(Way("processes", 1, own_pool=True))
        if self.effort.ray:
            ways.append(Way("ray", 2))
        return ways

    def _way(self) -> Way:
        """Any, for a stream that is restored."""
        chance = self.chance
        if chance.random() < self.effort.processes / 3:
            return Way("processes", 2)
        if chance.random() < 0.2:
            return Way("threads", 2, sizes=self._sizes())
        plan = chance.choice(("optimised", "written", "replanned", "some"))
        return Way(plan=plan, seed=chance.randrange(100), sizes=self._sizes())

    # States.

    def _restore(self, saved: Outcome, told: str, policy: str) -> None:
        """Goes on from some states, by any way and with a policy that may be another one."""
        expected, states = self._reference(policy), saved.states
        if len(states) > STATES:
            states = [*self.chance.sample(states[:-1], STATES - 1), states[-1]]
        for epoch, given, state in states:
            way = self._way()
            rest = expected.rest(epoch, given)
            epochs = max(1, len(rest.epochs) if self.chance.random() < 0.3 else 1)
            if not rest.epochs:
                continue
            found = self.run(way, policy, state=state, epochs=epochs)
            how = f"{told}restored after batch {given} of epoch {epoch}: {way}"
            how += f"\n  state: {state_of(state)}"
            self._compare(found, way, policy, how, epochs, (epoch, given))

    def _states_of_another(self) -> None:
        way = self._way()
        found = self.run(way, epochs=1, states=True)
        self._compare(found, way, self.case.policy, str(way), 1)
        self._compare_counts(found, way)
        self._restore(found, f"state of {way}, ", self.case.policy)

    def _compare_counts(self, found: Outcome, way: Way) -> None:
        """States of one moment count the same rows, failed and read: shares are judged by them."""
        if not self._counts:  # plans may get further than the plan as written
            return
        expected = {(epoch, given): state for epoch, given, state in self.reference.states}
        for epoch, given, state in found.states:
            ours, theirs = expected.get((epoch, given)), json.loads(state)["failures"]
            if ours is not None and json.loads(ours)["failures"] != theirs:
                raise Different(
                    "counts",
                    f"{way}: after batch {given} of epoch {epoch} the state counts {theirs}, not "
                    f"{json.loads(ours)['failures']}\n  {state_of(ours)}\n  {state_of(state)}",
                )

    # Policies.

    def _other_policies(self) -> None:
        """A job that died on a bad row goes on with another policy, and the other way round."""
        chance = self.chance
        way = self._way()
        policy = chance.choice(("sv.Skip()", "sv.Skip()", "sv.Skip(at_most=3)", "sv.Substitute(0)"))
        if "at_most" in policy:  # a plan with earlier filters passes over rows that this one counts
            way = REFERENCE
        raising = self.run(way, "'raise'", states=True)
        lenient = self._reference(policy)
        shared = _common(raising, lenient)
        before = [s for s in raising.states if s[0] == 0 and s[1] <= shared]
        self._restore(replace(raising, states=before), f"raise, then {policy}: ", policy)
        strict = self._reference("'raise'")
        if strict.error is not None and lenient.failures[0]:
            back = [s for s in lenient.states if s[0] == 0 and s[1] <= _common(strict, lenient)]
            self._restore(replace(lenient, states=back), f"{policy}, then raise: ", "'raise'")

    # Ranks.

    def _worlds(self) -> None:
        worlds = Worlds(self.case, self.chance)
        try:
            worlds.check()
        finally:
            self.effort.runs += worlds.runs


def _common(one: Outcome, other: Outcome) -> int:
    """Batches at the start of the first epoch that two runs share."""
    if not one.epochs or not other.epochs:
        return -1
    same = 0
    for a, b in zip(one.epochs[0], other.epochs[0], strict=False):
        if a != b:
            break
        same += 1
    return same


def state_of(state: str) -> str:
    found = json.loads(state)
    return json.dumps({k: found[k] for k in ("epoch", "step", "cursors")})
