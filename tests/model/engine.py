"""Explore every order in which the steps of a few processes can happen, and judge each state that is reached.

A process is a generator of requests. Each request is one atomic step, and any other process may take steps in between.
A process that sleeps is simply not scheduled. A request may get no answer. It is then *in flight*: it takes effect at
any later time or never, whatever happens to its sender.

These techniques keep the number of states small, and are sound for the stated reasons:

- *A crash is not a step.* `model.judge` judges every state as if all processes died in it, and then lets all requests
  in flight arrive. A crash adds no schedule, because a crashed process is one that is never scheduled again.
- *Answers are forgotten.* A process is identified by its function, its arguments, and the answers that it got since;
  `Become` makes it forget the answers. Questions return only what the process uses. Equal processes are merged.
- *Reading is one step.* Objects other than shards are never changed in place, so listing objects and reading them is
  one step. The exceptions are configurations about a name that is used twice or about a torn listing.
- *Twins.* If two processes differ only in their names, a state and its mirror image are merged. Both get the same
  judgement, because no rule depends on the order of the twins' names.
- *Everything is computed once.* Stores, processes and reports to callers are numbered, and a state is a tuple of such
  numbers. The effects of requests and answers, looks and judgements are cached by number. States are compared exactly,
  not by a hash that different states could share.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from .judge import Told, judge
from .objects import Content, Name, Store
from .rules import on
from .states import Configuration, Numbered, Process, Result, State, Steps, described, renamed
from .store import UNKNOWN, Ask, Become, Change, Choice, Get, Recall, Request, Tell, change


class Exploration:
    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._stores: Numbered[frozenset[tuple[Name, Content]]] = Numbered()
        self._processes: Numbered[Process] = Numbered()
        self._in_flight: Numbered[tuple[Change, ...]] = Numbered()
        self._told: Numbered[Told] = Numbered()
        self._dicts: dict[int, Store] = {}
        self._stepped: dict[tuple[int, Any], tuple[int, tuple[Tell, ...]]] = {}
        self._changed: dict[tuple[int, Change], tuple[int, str]] = {}
        self._asked: dict[tuple[int, Ask], Any] = {}
        self._judged: dict[tuple[int, int, int], str] = {}
        self._mirrored: dict[tuple[str, int], int] = {}

    # -- results that are cached by number

    def _store(self, number: int) -> Store:
        if number not in self._dicts:
            self._dicts[number] = dict(self._stores.things[number])
        return self._dicts[number]

    def _change(self, store: int, request: Change) -> tuple[int, str]:
        if (store, request) not in self._changed:
            before = self._store(store)
            after, answer = change(before, request)
            self._changed[store, request] = (store if after is before else self._number(after), answer)
        return self._changed[store, request]

    def _number(self, store: Store) -> int:
        return self._stores(frozenset(store.items()))

    def _ask(self, store: int, request: Ask) -> Any:
        if (store, request) not in self._asked:
            self._asked[store, request] = request.question(self._store(store), *request.arguments)
        return self._asked[store, request]

    def _step(self, process: int, answer: Any) -> tuple[int, tuple[Tell, ...]]:
        if (process, answer) not in self._stepped:
            before = self._processes.things[process]
            assert before.function is not None
            self._stepped[process, answer] = self._run(before.function, before.arguments, (*before.answers, answer))
        return self._stepped[process, answer]

    def _run(
        self, function: Callable[..., Steps], arguments: tuple[Any, ...], answers: tuple[Any, ...]
    ) -> tuple[int, tuple[Tell, ...]]:
        """Send a new generator the answers received so far, and return the process with its next request."""
        told: list[Tell] = []
        while True:
            steps, given = function(*arguments), 0
            try:
                request = next(steps)
                while not isinstance(request, Become):
                    if isinstance(request, Tell):
                        if given == len(answers):
                            told.append(request)
                        request = steps.send(None)
                    elif given < len(answers):
                        given += 1
                        request = steps.send(answers[given - 1])
                    else:
                        return self._processes(Process(function, arguments, answers, request)), tuple(told)
            except StopIteration as end:
                return self._processes(Process(None, (), (), None, str(end.value))), tuple(told)
            function, arguments, answers = request.function, request.arguments, ()

    def _tell(self, told: int, more: tuple[Tell, ...]) -> int:
        if not more:
            return told
        now = self._told.things[told]
        for each in more:
            now = now._replace(**{each.what: getattr(now, each.what) | frozenset(each.values)})
        return self._told(now)

    def _judge(self, state: State) -> str:
        store, _, in_flight, told, *_ = state
        if (store, told, in_flight) not in self._judged:
            after = self._configuration.after
            found = self._store(store)
            self._judged[store, told, in_flight] = next(
                filter(
                    None,
                    (
                        judge(
                            each, self._told.things[told], self._in_flight.things[in_flight], self._configuration.also
                        )
                        for each in (after(found) if after else (found,))
                    ),
                ),
                "",
            )
        return self._judged[store, told, in_flight]

    # -- steps

    def _successors(self, state: State) -> Iterator[tuple[str, Any, Any, State]]:
        """Yield each possible step: the process, its request, the answer, and the resulting state."""
        store, before, in_flight, told, late, *processes = state
        configuration = self._configuration
        waiting = self._in_flight.things[in_flight]
        for at, arriving in enumerate(waiting):
            after, _ = self._change(store, arriving)
            rest = self._in_flight(waiting[:at] + waiting[at + 1 :])
            yield "LATE", arriving, "arrives", (after, self._before(store, after, before), rest, told, late, *processes)
        for at, number in enumerate(processes):
            process, me = self._processes.things[number], configuration.actors[at].name
            request = process.request
            if request is None:
                continue
            if configuration.allowed and not self._is_allowed(me, request, state):
                continue
            for answer, after, flying, left in self._answers(request, me, state):
                becomes, tells = self._step(number, answer)
                rest_of = (*processes[:at], becomes, *processes[at + 1 :])
                old = self._before(store, after, before)
                yield me, request, answer, (after, old, flying, self._tell(told, tells), left, *rest_of)

    def _is_allowed(self, me: str, request: Request, state: State) -> bool:
        assert self._configuration.allowed is not None
        processes = (self._processes.things[each] for each in state[5:])
        names = (actor.name for actor in self._configuration.actors)
        return self._configuration.allowed(me, request, self._store(state[0]), dict(zip(names, processes, strict=True)))

    def _answers(self, request: Request, me: str, state: State) -> Iterator[tuple[Any, int, int, int]]:
        """Yield each possible answer, with the store, the requests in flight, and how many more answers may be late."""
        store, before, in_flight, told, late = state[:5]
        configuration = self._configuration
        if isinstance(request, Recall):
            yield self._told.things[told].promised(), store, in_flight, late
        elif isinstance(request, Get):
            yield self._store(store).get(request.name), store, in_flight, late
        elif isinstance(request, Ask):
            yield self._ask(store, request), store, in_flight, late
            if configuration.old_lists and before != store and not (request.decides and on("wait-out-old-lists")):
                now = self._store(store)
                old = self._number({name: now[name] for name in self._store(before) if name in now})
                yield self._ask(old, request), store, in_flight, late
        elif isinstance(request, Choice):
            for choice in range(request.below):
                yield choice, store, in_flight, late
        else:
            assert not isinstance(request, Tell | Become)
            after, answer = self._change(store, request)
            yield answer, after, in_flight, late
            may = not configuration.late_for or me in configuration.late_for
            if late and may and isinstance(request, configuration.late_kinds):
                flying = (*self._in_flight.things[in_flight], request)
                yield UNKNOWN, store, self._in_flight(tuple(sorted(flying, key=repr))), late - 1

    def _before(self, store: int, after: int, before: int) -> int:
        return (store if store != after else before) if self._configuration.old_lists else 0

    # -- twins

    def _mirror(self, state: State) -> State:
        store, _, in_flight, told, late, *processes = state
        twins = self._configuration.twins
        assert twins is not None
        order = list(range(len(processes)))
        names = [actor.name for actor in self._configuration.actors]
        one, other = names.index(twins[0]), names.index(twins[1])
        order[one], order[other] = other, one
        return (
            self._mirror_of("store", store, self._stores, twins),
            0,
            self._mirror_of("flight", in_flight, self._in_flight, twins),
            self._mirror_of("told", told, self._told, twins),
            late,
            *(self._mirror_of("process", processes[at], self._processes, twins) for at in order),
        )

    def _mirror_of(self, kind: str, number: int, numbered: Numbered[Any], twins: tuple[str, str]) -> int:
        if (kind, number) not in self._mirrored:
            mirrored = renamed(numbered.things[number], dict([twins, twins[::-1]]))
            if kind == "flight":
                mirrored = tuple(sorted(mirrored, key=repr))
            self._mirrored[kind, number] = numbered(mirrored)
        return self._mirrored[kind, number]

    # -- the exploration

    def explore(self, most: int = 0, *, outcomes: bool = False) -> Result:
        """Explore breadth first, so that traces are as short as possible. Visit at most ``most`` states (0: all)."""
        begun = time.process_time()
        configuration = self._configuration
        started = [self._run(actor.function, actor.arguments, ()) for actor in configuration.actors]
        told = self._told(configuration.told)
        for _, tells in started:
            told = self._tell(told, tells)
        store = self._stores(frozenset(configuration.store))
        first: State = (store, store if configuration.old_lists else 0, self._in_flight(()), told, configuration.late)
        first = (*first, *(number for number, _ in started))
        came_from: dict[State, State] = {first: first}
        queue = deque([first])
        result = Result(configuration.name)
        while queue and not (most and len(came_from) >= most):
            state = queue.popleft()
            if wrong := self._judge(state):
                result.wrong, result.trace = wrong, self._trace(came_from, state)
                break
            for *_, following in self._successors(state):
                result.steps += 1
                if configuration.twins:
                    following = min(following, self._mirror(following))
                if following not in came_from:
                    came_from[following] = state
                    queue.append(following)
        result.states, result.seconds = len(came_from), time.process_time() - begun
        result.whole = not queue and not result.wrong
        if outcomes:
            for at, actor in enumerate(configuration.actors):
                ended = {self._processes.things[state[5 + at]] for state in came_from}
                result.outcomes[actor.name] = {process.ended_as for process in ended if process.request is None}
        return result

    def _trace(self, came_from: dict[State, State], state: State) -> list[str]:
        lines: list[str] = []
        while (before := came_from[state]) != state:
            lines.append(next(self._line(step) for step in self._successors(before) if self._same(step[-1], state)))
            state = before
        return lines[::-1]

    def _same(self, one: State, other: State) -> bool:
        return one == other or (self._configuration.twins is not None and self._mirror(one) == other)

    @staticmethod
    def _line(step: tuple[str, Any, Any, State]) -> str:
        who, request, answer, _ = step
        return f"{who}: {described(request)} -> {described(answer)}"
